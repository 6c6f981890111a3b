package runbook

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/rackproof/rackproof/evidence"
)

// Function is one function of the language.
type Function struct {
	Name string
	Doc  string
	impl function.Function
}

// Functions lists the functions of the language by name. All are pure; file
// reads only inside the runbook's folder.
func Functions() []Function {
	list := pureFunctions()
	list = append(list, Function{Name: "file", Doc: "The text of a file in the runbook's folder. The file is enclosed in the evidence."})
	slices.SortFunc(list, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func pureFunctions() []Function {
	return []Function{
		{"abs", "A number without its sign.", stdlib.AbsoluteFunc},
		{"bytes", "The number of bytes that a size such as \"16GiB\" means.", bytesFunc},
		{"ceil", "A number rounded up to a whole one.", stdlib.CeilFunc},
		{"chomp", "A text without the line ends at its end.", stdlib.ChompFunc},
		{"coalesce", "The first of its arguments that is not null.", stdlib.CoalesceFunc},
		{"compact", "A list of texts without the empty ones.", stdlib.CompactFunc},
		{"concat", "Lists after each other, as one list.", stdlib.ConcatFunc},
		{"contains", "Whether a list has an element.", stdlib.ContainsFunc},
		{"csvdecode", "The rows of a CSV text, as a list of objects named by its first row.", bound(stdlib.CSVDecodeFunc, lineBound)},
		{"distinct", "A list without repeated elements.", distinctFunc},
		{"element", "The element of a list at an index that wraps around.", stdlib.ElementFunc},
		{"endswith", "Whether a text ends with another.", textTest("suffix", strings.HasSuffix)},
		{"flatten", "A list of lists as one list.", stdlib.FlattenFunc},
		{"floor", "A number rounded down to a whole one.", stdlib.FloorFunc},
		{"format", "A text made from a pattern such as \"%s-%03d\".", bound(stdlib.FormatFunc, formatBound)},
		{"formatlist", "Like format, once for each element of its lists.", bound(stdlib.FormatListFunc, formatBound)},
		{"index", "The value in a list or map at a key.", stdlib.IndexFunc},
		{"join", "The texts of a list with a separator between them.", bound(stdlib.JoinFunc, joinBound)},
		{"jsondecode", "The value of a JSON text.", decodeJSON},
		{"jsonencode", "A value as JSON text.", stdlib.JSONEncodeFunc},
		{"keys", "The keys of a map, sorted.", stdlib.KeysFunc},
		{"length", "The number of elements of a collection, or of characters of a text.", lengthFunc},
		{"lookup", "The value of a map at a key, or else a default.", stdlib.LookupFunc},
		{"lower", "A text in lower case.", stdlib.LowerFunc},
		{"max", "The greatest of numbers.", stdlib.MaxFunc},
		{"merge", "Maps as one; later ones win.", stdlib.MergeFunc},
		{"min", "The least of numbers.", stdlib.MinFunc},
		{"range", "Numbers from a start to before a limit, by a step; at most 1024.", stdlib.RangeFunc},
		{"replace", "A text with each occurrence of another replaced.", bound(stdlib.ReplaceFunc, replaceBound)},
		{"reverse", "A list in reverse order.", stdlib.ReverseListFunc},
		{"seconds", "The number of seconds that a duration such as \"72h\" means.", secondsFunc},
		{"slice", "The part of a list from one index to before another.", stdlib.SliceFunc},
		{"sort", "A list of texts, sorted.", stdlib.SortFunc},
		{"split", "The parts of a text between separators.", bound(stdlib.SplitFunc, splitBound)},
		{"startswith", "Whether a text begins with another.", textTest("prefix", strings.HasPrefix)},
		{"substr", "Part of a text, by offset and length.", stdlib.SubstrFunc},
		{"sum", "The sum of a list of numbers.", sumFunc},
		{"title", "A text with the first letter of each word in upper case.", stdlib.TitleFunc},
		{"tobool", "A value as a bool.", stdlib.MakeToFunc(cty.Bool)},
		{"tolist", "A collection as a list.", stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType))},
		{"tomap", "An object as a map.", stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType))},
		{"tonumber", "A value as a number.", stdlib.MakeToFunc(cty.Number)},
		{"tostring", "A value as a text.", stdlib.MakeToFunc(cty.String)},
		{"trim", "A text without the given characters at its ends.", stdlib.TrimFunc},
		{"trimprefix", "A text without a prefix.", stdlib.TrimPrefixFunc},
		{"trimspace", "A text without white space at its ends.", stdlib.TrimSpaceFunc},
		{"trimsuffix", "A text without a suffix.", stdlib.TrimSuffixFunc},
		{"upper", "A text in upper case.", stdlib.UpperFunc},
		{"values", "The values of a map, in the order of its keys.", stdlib.ValuesFunc},
		{"zipmap", "A map from a list of keys and a list of values.", stdlib.ZipmapFunc},
	}
}

// impure names functions that other languages have and this one must not, and
// says why.
var impure = map[string]string{
	"timestamp":     "the clock",
	"plantimestamp": "the clock",
	"now":           "the clock",
	"timeadd":       "the clock",
	"formatdate":    "the clock",
	"env":           "the environment",
	"getenv":        "the environment",
	"pathexpand":    "the environment",
	"abspath":       "the environment",
	"uuid":          "chance",
	"random":        "chance",
	"rand":          "chance",
	"bcrypt":        "chance",
	"fileexists":    "what happens to lie on this machine",
	"fileset":       "what happens to lie on this machine",
}

// laterFunctions are part of the language and not yet of this build.
var laterFunctions = []string{"baseline", "draw", "reference"}

var secondsFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "duration", Type: cty.String}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		d, err := evidence.ParseDuration(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.NumberFloatVal(d.Std().Seconds()), nil
	},
})

var bytesFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "size", Type: cty.String}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		n, err := evidence.ParseBytes(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.NumberUIntVal(n), nil
	},
})

var lengthFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		v := args[0]
		t := v.Type()
		switch {
		case t == cty.String:
			return stdlib.Strlen(v)
		case t.IsCollectionType(), t.IsTupleType(), t.IsObjectType():
			return cty.NumberIntVal(int64(v.LengthInt())), nil
		}
		return cty.NilVal, function.NewArgErrorf(0, "a %s has no length: give a text, a list or a map", t.FriendlyName())
	},
})

var sumFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "numbers", Type: cty.List(cty.Number)}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		total := cty.Zero
		for _, v := range args[0].AsValueSlice() {
			if v.IsNull() {
				return cty.NilVal, function.NewArgErrorf(0, "an element is null")
			}
			total = total.Add(v)
		}
		return total, nil
	},
})

// distinctFunc is cty's, which compares every element with every other, and for
// texts, numbers and bools one that does not.
var distinctFunc = function.New(&function.Spec{
	Params: stdlib.DistinctFunc.Params(),
	Type:   func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		list := args[0]
		element := list.Type().ElementType()
		if !element.IsPrimitiveType() {
			if list.LengthInt() > 256 {
				return cty.NilVal, function.NewArgErrorf(0, "there are more than 256 elements that are not texts, numbers or bools")
			}
			return stdlib.DistinctFunc.Call(args)
		}
		seen := map[string]bool{}
		var out []cty.Value
		for _, v := range list.AsValueSlice() {
			text := "\x00null"
			if !v.IsNull() && element == cty.Number {
				text = digits(v)
			} else if plain, ok := plainText(v); ok {
				text = plain
			}
			if !seen[text] {
				seen[text] = true
				out = append(out, v)
			}
		}
		if len(out) == 0 {
			return cty.ListValEmpty(element), nil
		}
		return cty.ListVal(out), nil
	},
})

func textTest(part string, test func(text, part string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: part, Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(test(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

// bound is f with a look at its arguments first, where the result could be
// far larger than they are.
func bound(f function.Function, check func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params:   f.Params(),
		VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := checkBound(args, check); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

func checkBound(args []cty.Value, check func(args []cty.Value) error) error {
	for _, a := range args {
		if !a.IsWhollyKnown() || a.IsNull() {
			return nil // refused or left unknown by the function itself
		}
	}
	return check(args)
}

var errTooLarge = errors.New("the result would be too large")

// lineBound: each row becomes an object.
func lineBound(args []cty.Value) error {
	if strings.Count(args[0].AsString(), "\n") > maxElements {
		return function.NewArgErrorf(0, "there are more than %d rows", maxElements)
	}
	return nil
}

// splitBound: an empty separator splits between all characters.
func splitBound(args []cty.Value) error {
	if strings.Count(args[1].AsString(), args[0].AsString()) > maxElements {
		return errTooLarge
	}
	return nil
}

func replaceBound(args []cty.Value) error {
	text, old, with := args[0].AsString(), args[1].AsString(), args[2].AsString()
	if len(text)+strings.Count(text, old)*len(with) > maxText {
		return errTooLarge
	}
	return nil
}

func joinBound(args []cty.Value) error {
	total, parts := 0, 0
	for _, list := range args[1:] {
		for it := list.ElementIterator(); it.Next(); {
			if _, v := it.Element(); !v.IsNull() {
				total += len(v.AsString())
			}
			parts++
		}
	}
	if total+parts*len(args[0].AsString()) > maxText {
		return errTooLarge
	}
	return nil
}

// formatBound: each verb may repeat the longest argument or pad to its width.
func formatBound(args []cty.Value) error {
	if args[0].Type() != cty.String {
		return nil
	}
	pattern := args[0].AsString()
	run := 0
	for i := range len(pattern) {
		if c := pattern[i]; c < '0' || c > '9' {
			run = 0
		} else if run++; run > 3 && strings.Contains(pattern[:i], "%") {
			return function.NewArgErrorf(0, "a width of more than 999, or a number of more than three digits after a \"%%\"")
		}
	}
	longest, times := 0, 1
	for _, a := range args[1:] {
		if hugeNumber(a) {
			return errTooLarge
		}
		if a.Type().IsListType() || a.Type().IsTupleType() || a.Type().IsSetType() {
			times = max(times, a.LengthInt())
		}
		longest = max(longest, printed(a))
	}
	// formatlist prints one element of a list at a time, format all of it.
	if (len(pattern)+strings.Count(pattern, "%")*(1000+longest/times))*times > 16*maxText {
		return errTooLarge
	}
	return nil
}

// hugeNumber reports whether a text in val reads as a number that would take
// more than a line to print: a verb may convert it.
func hugeNumber(val cty.Value) bool {
	found := false
	_ = cty.Walk(val, func(_ cty.Path, v cty.Value) (bool, error) {
		if found || v.IsNull() || v.Type() != cty.String || !strings.ContainsAny(v.AsString(), "eE") || len(v.AsString()) > longNumber {
			return !found, nil
		}
		if n, err := cty.ParseNumberVal(v.AsString()); err == nil {
			_, d := measure(n, hcl.Range{})
			found = d != nil
		}
		return !found, nil
	})
	return found
}

// printed is about the length of val when it is printed.
func printed(val cty.Value) int {
	total := 0
	_ = cty.Walk(val, func(_ cty.Path, v cty.Value) (bool, error) {
		switch {
		case v.IsNull() || v.Type() != cty.String:
			total += 32
		default:
			total += len(v.AsString())
		}
		return true, nil
	})
	return total
}

// jsonBound: the decoder recurses for each level, and each number may be
// larger than any that the language has.
func jsonBound(args []cty.Value) error {
	text := args[0].AsString()
	depth, commas, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',':
			commas++
		}
		if depth > maxDepth {
			return function.NewArgErrorf(0, "it is nested more than %d levels deep", maxDepth)
		}
		if commas > 4*maxElements {
			return errTooLarge
		}
	}
	return nil
}

// decodeJSON is jsondecode without numbers that no 64-bit float can hold: to
// print one of them could take a billion digits.
var decodeJSON = function.New(&function.Spec{
	Params: stdlib.JSONDecodeFunc.Params(),
	Type: func(args []cty.Value) (cty.Type, error) {
		if err := checkBound(args, jsonBound); err != nil {
			return cty.NilType, err
		}
		return stdlib.JSONDecodeFunc.ReturnTypeForValues(args)
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		val, err := stdlib.JSONDecodeFunc.Call(args)
		if err != nil {
			return cty.NilVal, err
		}
		if d := measureAll(val, hcl.Range{}); d != nil {
			return cty.NilVal, function.NewArgError(0, errTooLarge)
		}
		return val, nil
	},
})

// fileFunction is file(path) on f.
func fileFunction(f *folder) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			data, err := f.file(args[0].AsString(), maxFile)
			if err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			if !utf8.Valid(data) {
				return cty.NilVal, function.NewArgErrorf(0, "%q is not text in UTF-8", args[0].AsString())
			}
			return cty.StringVal(string(data)), nil
		},
	})
}

// functionTable is the functions that expressions may call; file only where f
// is not nil.
func functionTable(f *folder) map[string]function.Function {
	table := map[string]function.Function{}
	for _, fn := range pureFunctions() {
		table[fn.Name] = fn.impl
	}
	if f != nil {
		table["file"] = fileFunction(f)
	}
	return table
}

// functionNames lists table for suggestions.
func functionNames(table map[string]function.Function) []string {
	return slices.Sorted(maps.Keys(table))
}

// whyNot says why there is no function called name.
func whyNot(name string, table map[string]function.Function) (Rule, string, string) {
	if source, ok := impure[name]; ok {
		return RuleImpureFunction, "Function is not pure", fmt.Sprintf(
			"A runbook has no function %q, since its result depends on %s: the same runbook and inputs must always give the same plan, or nobody could derive it again. Declare a variable and give its value with --var.", name, source)
	}
	if slices.Contains(laterFunctions, name) {
		return RuleNotYet, "Not part of this build", notYet(fmt.Sprintf("The function %q", name))
	}
	return RuleUnknownFunction, "Unknown function", fmt.Sprintf("There is no function named %q.%s", name, didYouMean(name, functionNames(table), "%q"))
}
