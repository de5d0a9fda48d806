package limiter

// A holding is the owner of a lease that stands for several.
type holding struct {
	source source
	leases []Lease
	few    [4]Lease // leases, where they fit
}

// all asks one after the other for a lease and returns one for all of them.
// Where one does not grant, or panics, it gives back what it has.
func all(members int, ask func(i int) (Lease, error)) (lease Lease, err error) {
	var few [4]Lease
	held := few[:0]
	granted := false
	defer func() {
		if !granted {
			undoAll(held)
		}
	}()
	for i := range members {
		lease, err = ask(i)
		if err != nil || !lease.Acquired() {
			return lease, err
		}
		if lease.from != nil {
			held = append(held, lease)
		}
	}
	granted = true
	switch len(held) {
	case 0:
		return Lease{state: acquired}, nil
	case 1:
		return held[0], nil
	}
	h := new(holding)
	h.leases = append(h.few[:0], held...)
	h.source = source{h}
	return Lease{from: &h.source, state: acquired}, nil
}

func undoAll(leases []Lease) {
	for i := len(leases) - 1; i >= 0; i-- {
		leases[i].undo()
	}
}

// release is idempotent, since that of each lease is.
func (h *holding) release(claim) {
	for i := len(h.leases) - 1; i >= 0; i-- {
		h.leases[i].Release()
	}
}

func (h *holding) undo(claim) { undoAll(h.leases) }
