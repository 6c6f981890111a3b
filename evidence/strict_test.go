package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	N int    `json:"n"`
	S string `json:"s,omitempty"`
}

type sample struct {
	Name    string             `json:"name"`
	Number  float64            `json:"number"`
	Pointer *float64           `json:"pointer"`
	List    []inner            `json:"list"`
	Map     map[string]inner   `json:"map"`
	Raw     json.RawMessage    `json:"raw"`
	Any     any                `json:"any"`
	When    time.Time          `json:"when"`
	Outcome Outcome            `json:"outcome"`
	Digest  Digest             `json:"digest"`
	Deep    map[string]*sample `json:"deep"`
	Hidden  int                `json:"-"`
	inner
}

func TestDecodeStrictTakes(t *testing.T) {
	for _, text := range []string{
		`{}`, " {\n} \t\r\n",
		`{"name":"\u0061\n\"\\\/\ud83d\ude00 ä","number":-0.5e+10,"n":7,"s":"x"}`,
		`{"pointer":null,"list":null,"map":null,"raw":null,"any":null,"deep":null}`,
		`{"list":[{"n":1},{"s":"a"}],"map":{"A":{"n":1},"a":{"n":2}},"raw":{"b":[1,{"c":{}}]},"any":[]}`,
		`{"when":"2026-11-30T14:02:11Z","outcome":"pass","digest":"` + string(DigestOf(nil)) + `"}`,
		`{"deep":{"x":{"deep":{"y":{"name":"z"},"z":null}}}}`,
		`{"number":1e308,"any":1e-400}`,
		`{"raw":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`,
	} {
		var strict, plain sample
		if err := DecodeStrict([]byte(text), &strict); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := json.Unmarshal([]byte(text), &plain); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plain, strict, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s: differs from encoding/json:\n%s", text, diff)
		}
	}
}

func TestDecodeStrictRefuses(t *testing.T) {
	deep := strings.Repeat("[", 32) + strings.Repeat("]", 32)
	for text, want := range map[string]string{
		``:                                  "line 1: the document ends too early",
		"\n\n":                              "line 3: the document ends too early",
		"\ufeff{}":                          "want a value",
		`{} {}`:                             "data after the document",
		`{}x`:                               "data after the document",
		`{"name":"a","name":"b"}`:           "name: the key is there twice",
		`{"name":"a","n\u0061me":"b"}`:      "name: the key is there twice",
		`{"Name":"a"}`:                      `unknown field "Name": the name is spelled "name"`,
		`{"\u212aame":"a"}`:                 "unknown field",
		`{"li\u017ft":[]}`:                  `the name is spelled "list"`, // the long s folds to s
		`{"other":1}`:                       `unknown field "other"`,
		`{"hidden":1}`:                      `unknown field "hidden"`,
		`{"list":[{"n":1},{"N":1}]}`:        `list[1]: unknown field "N": the name is spelled "n"`,
		`{"map":{"a":{"n":1,"n":2}}}`:       "map.a.n: the key is there twice",
		`{"map":{"a":{"n":1},"a":{"n":2}}}`: "map.a: the key is there twice",
		`{"raw":{"a":[{"b":1,"b":2}]}}`:     "raw.a[0].b: the key is there twice",
		`{"any":{"a":1,"a":2}}`:             "any.a: the key is there twice",
		`{"deep":{"x":{"Name":"y"}}}`:       `deep.x: unknown field "Name"`,
		`{"raw":` + deep + `}`:              "nested deeper than 32",
		"{\"name\":\"\xff\"}":               "invalid UTF-8",
		"{\"name\":\"\xed\xa0\x80\"}":       "invalid UTF-8",
		`{"name":"\ud800"}`:                 "half of a surrogate pair",
		`{"name":"\udc00\ud800"}`:           "half of a surrogate pair",
		`{"name":"\ud800\u0041"}`:           "half of a surrogate pair",
		"{\"name\":\"a\nb\"}":               "control character",
		"{\"name\":\"\\q\"}":                "unknown escape",
		`{"name":"\u00g0"}`:                 "four hex digits",
		`{"name":"a`:                        "the text does not end",
		`{"number":1e309}`:                  "number: the number is beyond",
		`{"any":-1e999}`:                    "beyond",
		`{"any":1` + strings.Repeat("0", 400) + `}`: "beyond",
		`{"number":NaN}`:             "want a value",
		`{"number":Infinity}`:        "want a value",
		`{"number":-}`:               "want a digit",
		`{"number":01}`:              "want \",\" or \"}\"",
		`{"number":1.}`:              "want a digit",
		`{"number":.5}`:              "want a value",
		`{"number":+1}`:              "want a value",
		`{"number":1e}`:              "want a digit",
		`{"number":0x1}`:             "want",
		`{"number":null}`:            "null is not a value",
		`{"name":null}`:              "null is not a value",
		`{"outcome":null}`:           "null is not a value",
		`{"when":null}`:              "null is not a value",
		`{"digest":null}`:            "null is not a value",
		`{"list":[null]}`:            "null is not a value",
		`{"map":{"a":null}}`:         "null is not a value",
		`null`:                       "null is not a value",
		`{"outcome":"Pass"}`:         "unknown outcome",
		`{"digest":"sha256:00"}`:     "64 lower-case hex",
		`{"name":1}`:                 "name: a number cannot be a string",
		`{"n":1.5}`:                  "cannot be a int",
		`{"n":99999999999999999999}`: "cannot be a int",
		`[]`:                         "cannot be a evidence.sample",
		`{"name":"a",}`:              "double quotes",
		`{,}`:                        "double quotes",
		`{"name" "a"}`:               `want ":"`,
		`{"list":[{"n":1},]}`:        "want a value",
		`{"list":[{"n":1} {"n":2}]}`: `want "," or "]"`,
		`{'name':"a"}`:               "double quotes",
		`{"any":tru}`:                "want true",
		`{"any":nul`:                 "want null",
		`// x`:                       "want a value",
		`{"list":[{"n":1}`:           "too early",
	} {
		var s sample
		err := DecodeStrict([]byte(text), &s)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	if err := DecodeStrict([]byte("{}"), sample{}); err == nil {
		t.Error("decoding into no pointer")
	}
}

func TestManyKeys(t *testing.T) {
	var b strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&b, "%q:0,", fmt.Sprint("key", i))
	}
	var m map[string]int
	if err := DecodeStrict([]byte("{"+strings.TrimSuffix(b.String(), ",")+"}"), &m); err != nil || len(m) != 200_000 {
		t.Errorf("%d keys, %v", len(m), err)
	}
	if err := DecodeStrict([]byte("{"+b.String()+`"key77":1}`), &m); err == nil || !strings.Contains(err.Error(), "key77: the key is there twice") {
		t.Errorf("a key twice among many: %v", err)
	}
}

func TestDecodeDocument(t *testing.T) {
	const v = `{"mediaType":"application/vnd.rackproof.verdict.v1+json","minor":%s,%s"outcome":"pass","findings":[],"coverage":{"cells":0,"measured":0,"nodes":0,"nodesPassing":0,"findings":0,"passing":0},"gates":[],"tests":[]}`
	for name, tc := range map[string]struct {
		text, want string
		newer      bool
	}{
		"ours":           {fmt.Sprintf(v, "0", ""), "", false},
		"newer":          {fmt.Sprintf(v, "3", ""), "", true},
		"newer, unknown": {fmt.Sprintf(v, "3", `"colour":{"a":1},`), "", true},
		"newer, twice":   {fmt.Sprintf(v, "3", `"colour":{"a":1,"a":2},`), "twice", true},
		"newer, case":    {fmt.Sprintf(v, "3", `"Outcome":"fail",`), `spelled "outcome"`, true},
		"unknown":        {fmt.Sprintf(v, "0", `"colour":1,`), `unknown field "colour"`, false},
		"negative":       {fmt.Sprintf(v, "-1", ""), "minor version is -1", false},
		"fraction":       {fmt.Sprintf(v, "0.5", ""), "whole number", false},
		"text":           {fmt.Sprintf(v, `"0"`, ""), "want a digit", false},
		"major":          {strings.Replace(fmt.Sprintf(v, "0", ""), "v1+", "v2+", 1), "another major version", false},
		"other":          {strings.Replace(fmt.Sprintf(v, "0", ""), "verdict", "plan", 1), "it is another document", false},
		"not first":      {`{"minor":0,"mediaType":"application/vnd.rackproof.verdict.v1+json"}`, "starts with", false},
		"no minor":       {`{"mediaType":"application/vnd.rackproof.verdict.v1+json","outcome":"pass"}`, "followed by", false},
		"list":           {`[]`, "an object", false},
		"empty":          {``, "too early", false},
	} {
		var verdict Verdict
		newer, err := DecodeDocument([]byte(tc.text), MediaVerdict, &verdict)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) || newer != tc.newer {
			t.Errorf("%s: newer %v, %v; want newer %v, %q", name, newer, err, tc.newer, tc.want)
		}
	}
}

func TestEncode(t *testing.T) {
	p := testPlan()
	content, err := Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, want := range []string{
		"{\n  \"mediaType\": \"application/vnd.rackproof.plan.v1+json\",\n  \"minor\": 0,\n",
		"\n  \"cells\": [\n    {\"id\":\"disk/n1.r1\",\"test\":\"disk\",\"nodes\":\"n1\",\"repetition\":1},\n    {\"id\":\"disk/n2.r1\"",
		"\"nodes\":\"n[1-2]\",\"repetition\":1}\n  ]",
		`"A<1>"`, "  \"clockLimit\": \"1s\"",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan has no %q:\n%s", want, text)
		}
	}
	if !strings.HasSuffix(text, "}\n") {
		t.Error("no line end")
	}
	var back Plan
	if newer, err := DecodeDocument(content, MediaPlan, &back); err != nil || newer {
		t.Fatal(err)
	}
	again, err := Encode(back)
	if err != nil || string(again) != text {
		t.Errorf("the plan that was read is written otherwise, %v:\n%s", err, again)
	}
	p.Cells = nil
	if content, err = Encode(p); err != nil || !json.Valid(content) {
		t.Errorf("a plan without cells: %v", err)
	}
	p.Title = "\n  \"cells\": []"
	p.Cells = back.Cells
	if content, err = Encode(p); err != nil {
		t.Fatal(err)
	}
	var odd Plan
	if _, err := DecodeDocument(content, MediaPlan, &odd); err != nil || odd.Title != p.Title || len(odd.Cells) != 3 {
		t.Errorf("a plan whose title looks like cells: %v", err)
	}
	line, err := EncodeLine(inner{N: 1, S: "a<\u2028>\n"})
	if err != nil || string(line) != "{\"n\":1,\"s\":\"a<\\u2028>\\n\"}\n" {
		t.Errorf("line %q, %v", line, err)
	}
}

func FuzzDecodeStrict(f *testing.F) {
	plan, err := Encode(testPlan())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plan)
	for _, seed := range []string{`{"name":"a","n":1}`, `{"raw":{"a":[1,2.5e3,"\ud83d\ude00"]}}`, `{"name":"a","n\u0061me":"b"}`, `[[[`, `{"any":1e999}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s sample
		strict := DecodeStrict(data, &s)
		var anything any
		loose := DecodeStrict(data, &anything)
		if (loose == nil || strict == nil) && !json.Valid(data) {
			t.Fatal("what is no JSON was taken")
		}
		if strict != nil {
			return
		}
		var plain sample
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("encoding/json refuses what was taken: %v", err)
		}
		if loose != nil {
			t.Fatalf("taken as a sample and not as anything: %v", loose)
		}
	})
}
