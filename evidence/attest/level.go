package attest

import "fmt"

// Level is how far a bundle can be trusted. Its zero value is Unknown.
type Level int

// The levels, each containing those before it.
const (
	Unknown    Level = iota
	Intact           // every byte matches the manifest: step 1
	Attested         // and the operator signed it: steps 1 and 2
	Reproduced       // and the verdict derives again from the raw files: steps 1, 2 and 4 to 6
)

var levelWords = [...]string{"unknown", "intact", "attested", "reproduced"}

// String is the level's word.
func (l Level) String() string {
	if l < Unknown || l > Reproduced {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelWords[l]
}

// MarshalText writes the level's word.
func (l Level) MarshalText() ([]byte, error) {
	if l < Unknown || l > Reproduced {
		return nil, fmt.Errorf("unknown trust level %d", int(l))
	}
	return []byte(levelWords[l]), nil
}

// UnmarshalText reads a level's word.
func (l *Level) UnmarshalText(text []byte) error {
	for i, word := range levelWords {
		if string(text) == word {
			*l = Level(i)
			return nil
		}
	}
	return fmt.Errorf("unknown trust level %q: want unknown, intact, attested or reproduced", text)
}
