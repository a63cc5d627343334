// Runs expressions as Kubernetes runs the rules of custom resources, for `cargo xtask cel-go`.
//
// Reads lines of JSON: first the schema of `self` and the objects, then a case per line. Writes a
// line of JSON per case: the error of the compilation, or the estimated costs, the value or the
// error, and what it has cost.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type header struct {
	Schema  spec.Schema   `json:"schema"`
	Objects []interface{} `json:"objects"`
}

type question struct {
	Expression string `json:"expression"`
	Object     int    `json:"object"`
}

type answer struct {
	Issues  string  `json:"issues,omitempty"`
	Type    string  `json:"type,omitempty"`
	Minimum uint64  `json:"minimum"`
	Maximum uint64  `json:"maximum"`
	Value   *string `json:"value,omitempty"`
	Error   string  `json:"error,omitempty"`
	Cost    uint64  `json:"cost"`
	Panic   string  `json:"panic,omitempty"`
}

// Allows `get`, answers `break` with an error, and denies everything else.
type decider struct{}

func (decider) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch a.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, "everybody may get", nil
	case "break":
		return authorizer.DecisionDeny, "", fmt.Errorf("the authorizer is broken")
	}
	return authorizer.DecisionNoOpinion, "nobody said so", nil
}

// Sizes by the schema of `self`.
type sizes struct{ root *apiservercel.DeclType }

func (s sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	at := s.root
	for _, name := range path[1:] {
		switch name {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			field := at.Fields[name]
			if field == nil {
				return nil
			}
			at = field.Type
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.MaxElements)}
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	decoder := json.NewDecoder(lines)
	decoder.UseNumber()
	var head header
	must(decoder.Decode(&head))
	schema := &openapi.Schema{Schema: &head.Schema}
	decl := common.SchemaDeclType(schema, false).MaybeAssignTypeName("Self")
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("self", decl.CelType()),
			cel.Variable("authorizer", library.AuthorizerType),
		},
		DeclTypes: []*apiservercel.DeclType{decl},
	})
	must(err)
	env := set.NewExpressionsEnv()
	estimator := &library.CostEstimator{SizeEstimator: sizes{decl}}
	may := library.NewAuthorizerVal(&user.DefaultInfo{Name: "ann"}, decider{})
	var objects []ref.Val
	for _, object := range head.Objects {
		objects = append(objects, common.UnstructuredToVal(numbers(object), schema))
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for decoder.More() {
		var q question
		must(decoder.Decode(&q))
		variables := map[string]interface{}{"self": objects[q.Object], "authorizer": may}
		must(encoder.Encode(run(env, estimator, q.Expression, variables)))
	}
}

func run(env *cel.Env, estimator *library.CostEstimator, expression string, variables map[string]interface{}) (a answer) {
	defer func() {
		if fault := recover(); fault != nil {
			a = answer{Panic: fmt.Sprint(fault)}
		}
	}()
	ast, issues := env.Compile(expression)
	if issues != nil && issues.Err() != nil {
		return answer{Issues: issues.String()}
	}
	program, err := env.Program(ast,
		cel.CostLimit(celconfig.PerCallLimit),
		cel.CostTracking(estimator),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
	)
	if err != nil {
		return answer{Issues: "program: " + err.Error()}
	}
	a.Type = ast.OutputType().String()
	estimate, err := env.EstimateCost(ast, estimator)
	must(err)
	a.Minimum, a.Maximum = estimate.Min, estimate.Max
	value, details, err := program.ContextEval(context.Background(), variables)
	if details != nil && details.ActualCost() != nil {
		a.Cost = *details.ActualCost()
	}
	if err != nil {
		a.Error = err.Error()
		return a
	}
	shown := show(value)
	a.Value = &shown
	return a
}

// The value as the comparison spells it.
func show(value ref.Val) string {
	switch v := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return fmt.Sprint(bool(v))
	case types.Int:
		return fmt.Sprintf("int:%d", int64(v))
	case types.Uint:
		return fmt.Sprintf("uint:%d", uint64(v))
	case types.Double:
		if math.IsNaN(float64(v)) {
			return "double:NaN"
		}
		return fmt.Sprintf("double:%016x", math.Float64bits(float64(v)))
	case types.String:
		return `"` + string(v) + `"`
	case types.Bytes:
		return fmt.Sprintf("bytes:%x", []byte(v))
	case types.Duration:
		return fmt.Sprintf("duration:%d", v.Nanoseconds())
	case types.Timestamp:
		return fmt.Sprintf("timestamp:%d.%09d", v.Unix(), v.Nanosecond())
	case *types.Optional:
		if !v.HasValue() {
			return "none"
		}
		return "some(" + show(v.GetValue()) + ")"
	case *types.Type:
		return "type:" + v.TypeName()
	case traits.Mapper:
		var entries []string
		for i := v.Iterator(); i.HasNext() == types.True; {
			key := i.Next()
			entries = append(entries, show(key)+": "+show(v.Get(key)))
		}
		sort.Strings(entries)
		return "{" + strings.Join(entries, ", ") + "}"
	case traits.Lister:
		var items []string
		for i := v.Iterator(); i.HasNext() == types.True; {
			items = append(items, show(i.Next()))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return "value of " + value.Type().TypeName()
}

// Numbers as they come from JSON objects of Kubernetes: int64 if they are whole.
func numbers(value interface{}) interface{} {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		double, err := v.Float64()
		must(err)
		return double
	case []interface{}:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]interface{}:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return value
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
