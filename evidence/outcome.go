package evidence

import "fmt"

// Outcome is the answer to one question about the rack. Its zero value is
// None, which is never a pass.
type Outcome int

const (
	// None says that nothing was decided.
	None Outcome = iota
	// Pass says that a measurement met its threshold.
	Pass
	// Inconclusive says that the rack was shown neither good nor bad.
	Inconclusive
	// Error says that our own instrument broke.
	Error
	// Fail says that the rack missed a threshold.
	Fail
)

var outcomeWords = [...]string{"none", "pass", "inconclusive", "error", "fail"}

// String returns the outcome's word: none, pass, inconclusive, error or fail.
func (o Outcome) String() string {
	if o < None || o > Fail {
		return fmt.Sprintf("outcome(%d)", int(o))
	}
	return outcomeWords[o]
}

// MarshalText writes the outcome's word. An outcome outside the enumeration
// is an error, so that it cannot reach a document.
func (o Outcome) MarshalText() ([]byte, error) {
	if o < None || o > Fail {
		return nil, fmt.Errorf("unknown outcome %d", int(o))
	}
	return []byte(outcomeWords[o]), nil
}

// UnmarshalText reads an outcome's word.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, word := range outcomeWords {
		if string(text) == word {
			*o = Outcome(i)
			return nil
		}
	}
	return fmt.Errorf("unknown outcome %q", text)
}

// Worst folds outcomes: Pass < Inconclusive < Error < Fail. An empty list, or
// a None in it, counts as Inconclusive: nothing was measured there. Nothing
// else in this project folds outcomes.
func Worst(outcomes ...Outcome) Outcome {
	if len(outcomes) == 0 {
		return Inconclusive
	}
	worst := Pass
	for _, o := range outcomes {
		if o < Pass || o > Fail {
			o = Inconclusive
		}
		worst = max(worst, o)
	}
	return worst
}
