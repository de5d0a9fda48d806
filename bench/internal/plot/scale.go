package plot

import "math"

// A scale puts the values low..high of an axis on from..to of the drawing.
type scale struct {
	axis      Axis
	from, to  float64
	low, high float64
}

func (s *scale) include(v float64) {
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// fit makes a range of what was included, and with nice set takes it to ticks.
func (s *scale) fit(nice bool) {
	if s.low > s.high { // nothing
		s.low, s.high = 1, 10
	}
	if s.axis.FromZero && !s.axis.Log {
		s.low = min(s.low, 0)
	}
	if s.low == s.high {
		s.low, s.high = s.low/2, s.high*2
		if s.low == s.high {
			s.high = 1
		}
	}
	if nice && !s.axis.Log {
		step := s.step()
		s.low, s.high = math.Floor(s.low/step)*step, math.Ceil(s.high/step)*step
	}
}

func (s *scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.axis.Log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// step is a round distance of some six ticks.
func (s *scale) step() float64 {
	raw := (s.high - s.low) / 6
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= raw {
			return m * power
		}
	}
	return 10 * power
}

// ticks are round values from low to high: of a logarithmic axis 1, 3, 10 and
// so on.
func (s *scale) ticks() (ticks []float64) {
	if !s.axis.Log {
		step := s.step()
		for i := math.Ceil(s.low/step - 1e-9); i*step <= s.high+step*1e-9; i++ {
			ticks = append(ticks, i*step+0) // no -0
		}
		return ticks
	}
	for power := math.Pow(10, math.Floor(math.Log10(s.low))); power <= s.high; power *= 10 {
		for _, v := range []float64{power, 3 * power} {
			if v >= s.low && v <= s.high {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}
