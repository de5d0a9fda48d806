package result

import (
	"fmt"
	"strconv"
	"strings"
)

// Numbers is a flag of positive numbers with commas between them; empty is none
// of them.
type Numbers []int

func (n *Numbers) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*n), " ", ","), "[]")
}

// Set replaces the numbers.
func (n *Numbers) Set(list string) error {
	*n = nil
	for field := range strings.SplitSeq(list, ",") {
		if list == "" {
			break
		}
		v, err := strconv.Atoi(field)
		if err != nil || v < 1 {
			return fmt.Errorf("%q is not a positive number", field)
		}
		*n = append(*n, v)
	}
	return nil
}
