package admin

import (
	"errors"
	"net/http"
)

// A Conflict is why a reload is out of the question, whatever the configuration.
type Conflict string

func (c Conflict) Error() string { return string(c) }

// Reloaded is the answer to POST /v1/reload.
type Reloaded struct {
	Warnings []string `json:"warnings"` // what has no effect, or none before a restart
}

// Draining is the answer to POST /v1/drain.
type Draining struct {
	Grace string `json:"grace"` // a duration: how long it may take
}

// reload answers when the configuration is in force, or is known not to be.
func (h *handler) reload(w http.ResponseWriter, _ *http.Request) {
	warnings, err := h.Reload()
	if err != nil {
		status := http.StatusUnprocessableEntity
		if _, never := errors.AsType[Conflict](err); never {
			status = http.StatusConflict
		}
		fail(w, status, err.Error())
		return
	}
	answer(w, http.StatusOK, Reloaded{append([]string{}, warnings...)})
}

func (h *handler) drain(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusAccepted, Draining{h.Drain().String()})
}
