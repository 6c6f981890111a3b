package checks

import (
	"strings"
	"testing"
)

func TestCommandLineDifference(t *testing.T) {
	script := "echo " + strings.Repeat("a", 200) + "\necho b"
	for name, test := range map[string]struct {
		asked commandLine
		ran   []string
		want  string
	}{
		"same":         {exactly([]string{"fio", "--bs=4096"}), []string{"fio", "--bs=4096"}, ""},
		"other word":   {exactly([]string{"fio", "--bs=4096", "x"}), []string{"fio", "--bs=65536", "y"}, `it ran with "--bs=65536" as word 2, where "--bs=4096" was asked`},
		"other tool":   {exactly([]string{"fio", "--bs=4096"}), []string{"true"}, `it ran with "true" as word 1, where "fio" was asked`},
		"less":         {exactly([]string{"fio", "--bs=4096", "x"}), []string{"fio"}, `it ran without word 2, where "--bs=4096" was asked`},
		"more":         {exactly([]string{"fio"}), []string{"fio", "--version"}, `it ran with "--version" as word 2, where none was asked`},
		"split":        {exactly([]string{"echo", "a b"}), []string{"echo", "a", "b"}, `it ran with "a" as word 2, where "a b" was asked`},
		"empty word":   {exactly([]string{"echo", ""}), []string{"echo"}, `it ran without word 2, where "" was asked`},
		"no argv":      {exactly([]string{"fio"}), nil, "exit.json has no argv"},
		"nothing":      {exactly(nil), nil, "exit.json has no argv"},
		"unknown step": {exactly(nil), []string{"fio"}, `it ran with "fio" as word 1, where none was asked`},
		"far behind": {exactly([]string{"sh", "-c", script}), []string{"sh", "-c", script + "c"},
			`it ran with …"` + strings.Repeat("a", 40) + `\necho bc" as word 3, where …"` + strings.Repeat("a", 41) + `\necho b" was asked`},
		"in between": {exactly([]string{strings.Repeat("a", 100)}), []string{strings.Repeat("a", 50) + "b" + strings.Repeat("a", 49)},
			`it ran with …"` + strings.Repeat("a", 16) + "b" + strings.Repeat("a", 31) + `"… as word 1, where …"` + strings.Repeat("a", 48) + `"… was asked`},
		"form":           {commandLine{[]string{"echo", "<{n}>."}, "{n}", "[0-9]{2}"}, []string{"echo", "<42>."}, ""},
		"form too short": {commandLine{[]string{"echo", "<{n}>."}, "{n}", "[0-9]{2}"}, []string{"echo", "<4>."}, `it ran with "<4>." as word 2, where "<{n}>." was asked`},
		"form and more":  {commandLine{[]string{"echo", "{n}"}, "{n}", "[0-9]{2}"}, []string{"echo", "42\n"}, `it ran with "42\n" as word 2, where "{n}" was asked`},
		"form is text":   {commandLine{[]string{"echo", "{n}."}, "{n}", "1|2"}, []string{"echo", "1x"}, `it ran with "1x" as word 2, where "{n}." was asked`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.asked.difference(test.ran); got != test.want {
				t.Errorf("difference is\n%s, want\n%s", got, test.want)
			}
		})
	}
}
