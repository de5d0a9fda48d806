package page

import (
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocument(t *testing.T) {
	w := httptest.NewRecorder()
	Serve(w, 401)
	assert.Equal(t, 401, w.Code)
	body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	for _, kind := range []string{"script", "style"} {
		content := regexp.MustCompile(`(?s)<` + kind + `>(.+)</` + kind + `>`).FindStringSubmatch(body)
		require.NotNil(t, content, kind)
		assert.Contains(t, policy, kind+"-src "+source([]byte(content[1]))+";")
	}
	assert.NotContains(t, policy, "unsafe")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "frame-ancestors 'none'")

	assert.NotContains(t, body, "/*style*/")
	assert.NotContains(t, body, "/*script*/")
	assert.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`, body, "what the server says is text")
	assert.NotRegexp(t, ` (style|on[a-z]+)=`, body, "the policy does not let it through")
	others := regexp.MustCompile(`https?://[^"'%]+`).FindAllString(body, -1)
	assert.Subset(t, []string{"http://www.w3.org/2000/svg"}, others, "nothing comes from elsewhere")
}
