// Patches objects as kube-apiserver does, for `cargo xtask patches`.
//
// Reads lines of JSON: first a header with the OpenAPI schemas of built-in types and a
// CustomResourceDefinition, then a case per line. Writes a line of JSON per case.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type header struct {
	// Files of published OpenAPI v3 documents.
	OpenAPI    []string                                 `json:"openapi"`
	Definition apiextensionsv1.CustomResourceDefinition `json:"definition"`
}

type question struct {
	// `json`, `merge`, `strategic` or `ownership`.
	Way    string          `json:"way"`
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
	Patch  string          `json:"patch"`
	Steps  []step          `json:"steps"`
}

// A write of a story.
type step struct {
	// `apply`, `update` or `patch` (a merge patch of the live object).
	Op          string          `json:"op"`
	Manager     string          `json:"manager"`
	Subresource string          `json:"subresource"`
	Force       bool            `json:"force"`
	Object      json.RawMessage `json:"object"`
}

type answer struct {
	Object   json.RawMessage `json:"object,omitempty"`
	Code     int32           `json:"code,omitempty"`
	Message  string          `json:"message,omitempty"`
	Causes   []string        `json:"causes,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	// The error of the library itself, which webhooks' patches show.
	Text  string   `json:"text,omitempty"`
	Panic string   `json:"panic,omitempty"`
	Steps []answer `json:"steps,omitempty"`
	// Other answers to the same question: Go walks maps in an order by chance.
	Others []answer `json:"others,omitempty"`
}

// How often a strategic merge patch is carried out.
const tries = 24

// A kind, and who tracks its fields, by subresource.
type kind struct {
	gvk      schema.GroupVersionKind
	custom   bool
	managers map[string]*managedfields.FieldManager
}

type world struct{ kinds map[string]*kind }

func main() {
	// Errors that are answered are logged, too.
	utilruntime.ErrorHandlers = nil
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	decoder := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	var head header
	must(decoder.Decode(&head))
	all := newWorld(head)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for decoder.More() {
		var q question
		must(decoder.Decode(&q))
		must(encoder.Encode(all.answer(q)))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newWorld(head header) *world {
	definitions := map[string]*spec.Schema{}
	for _, file := range head.OpenAPI {
		text, err := os.ReadFile(file)
		must(err)
		var document spec3.OpenAPI
		must(json.Unmarshal(text, &document))
		for name, definition := range document.Components.Schemas {
			definitions[name] = definition
		}
	}
	converter, err := managedfields.NewTypeConverter(definitions, false)
	must(err)
	all := &world{kinds: map[string]*kind{}}
	for _, row := range []struct {
		gvk    schema.GroupVersionKind
		resets map[string][]fieldpath.Path
	}{
		{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, map[string][]fieldpath.Path{
			"":       {fieldpath.MakePathOrDie("status")},
			"status": {fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "deletionTimestamp"), fieldpath.MakePathOrDie("metadata", "ownerReferences")},
		}},
		{schema.GroupVersionKind{Version: "v1", Kind: "Service"}, map[string][]fieldpath.Path{
			"":       {fieldpath.MakePathOrDie("status")},
			"status": {fieldpath.MakePathOrDie("spec")},
		}},
		{schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, map[string][]fieldpath.Path{"": nil}},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, map[string][]fieldpath.Path{
			"":       {fieldpath.MakePathOrDie("status")},
			"status": {fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels")},
		}},
	} {
		one := &kind{gvk: row.gvk, managers: map[string]*managedfields.FieldManager{}}
		for subresource, paths := range row.resets {
			manager, err := managedfields.NewDefaultFieldManager(converter, scheme.Scheme, noDefaults{}, scheme.Scheme,
				row.gvk, row.gvk.GroupVersion(), subresource, filters(row.gvk, paths))
			must(err)
			one.managers[subresource] = manager
		}
		all.kinds[row.gvk.Kind] = one
	}
	all.addCustom(definitions, head.Definition)
	return all
}

func filters(gvk schema.GroupVersionKind, paths []fieldpath.Path) map[fieldpath.APIVersion]fieldpath.Filter {
	version := fieldpath.APIVersion(gvk.GroupVersion().String())
	return map[fieldpath.APIVersion]fieldpath.Filter{version: fieldpath.NewExcludeSetFilter(fieldpath.NewSet(paths...))}
}

func (w *world) addCustom(static map[string]*spec.Schema, definition apiextensionsv1.CustomResourceDefinition) {
	base := &spec3.OpenAPI{Version: "3.0.0", Info: &spec.Info{}, Components: &spec3.Components{Schemas: static}}
	version := definition.Spec.Versions[0].Name
	own, err := builder.BuildOpenAPIV3(&definition, version, builder.Options{})
	must(err)
	merged, err := builder.MergeSpecsV3(base, own)
	must(err)
	converter, err := managedfields.NewTypeConverter(merged.Components.Schemas, false)
	must(err)
	gvk := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version, Kind: definition.Spec.Names.Kind}
	one := &kind{gvk: gvk, custom: true, managers: map[string]*managedfields.FieldManager{}}
	for subresource, paths := range map[string][]fieldpath.Path{
		"":       {fieldpath.MakePathOrDie("status")},
		"status": {fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata")},
	} {
		manager, err := managedfields.NewDefaultCRDFieldManager(converter, sameVersion{}, noDefaults{}, creater{},
			gvk, gvk.GroupVersion(), subresource, filters(gvk, paths))
		must(err)
		one.managers[subresource] = manager
	}
	w.kinds[gvk.Kind] = one
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

type creater struct{}

func (creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	return object, nil
}

// Converts custom resources of one version.
type sameVersion struct{}

func (sameVersion) Convert(in, out, _ interface{}) error {
	out.(*unstructured.Unstructured).Object = in.(*unstructured.Unstructured).DeepCopy().Object
	return nil
}

func (sameVersion) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()}); !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("oracle", reflect.TypeOf(in), target)
	}
	return in.DeepCopyObject(), nil
}

func (sameVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (w *world) answer(q question) (a answer) {
	defer func() {
		if fault := recover(); fault != nil {
			a.Panic = fmt.Sprint(fault)
		}
	}()
	switch q.Way {
	case "json":
		return patched(types.JSONPatchType, q)
	case "merge":
		return patched(types.MergePatchType, q)
	case "strategic":
		a := w.kinds[q.Kind].strategic(q)
		seen := map[string]bool{a.String(): true}
		for range tries {
			if other := w.kinds[q.Kind].strategic(q); !seen[other.String()] {
				seen[other.String()] = true
				a.Others = append(a.Others, other)
			}
		}
		return a
	}
	w.kinds[q.Kind].story(q.Steps, &a)
	return a
}

func patched(way types.PatchType, q question) answer {
	object, strict, err := handlers.OraclePatch(way, q.Object, []byte(q.Patch))
	if err != nil {
		a := failed(err)
		if way == types.JSONPatchType {
			a.Text = text(q)
		}
		return a
	}
	a := answer{Object: object}
	for _, one := range strict {
		a.Warnings = append(a.Warnings, one.Error())
	}
	return a
}

// The error of the library, as webhooks' patches show it.
func text(q question) string {
	patch, err := jsonpatch.DecodePatch([]byte(q.Patch))
	if err == nil {
		_, err = patch.Apply(q.Object)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func failed(err error) answer {
	status := responsewriters.ErrorToAPIStatus(err)
	a := answer{Code: status.Code, Message: status.Message}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			a.Causes = append(a.Causes, cause.Message+" @ "+cause.Field)
		}
	}
	return a
}

type recorder struct{ warnings *[]string }

func (r recorder) AddWarning(_, text string) { *r.warnings = append(*r.warnings, text) }

func (a answer) String() string {
	text, err := json.Marshal(a)
	must(err)
	return string(text)
}

func (k *kind) strategic(q question) (a answer) {
	defer func() {
		if fault := recover(); fault != nil {
			a = answer{Panic: fmt.Sprint(fault)}
		}
	}()
	original, into, reference := k.empty(), k.empty(), k.empty()
	must(json.Unmarshal(q.Object, original))
	ctx := warning.WithWarningRecorder(context.Background(), recorder{&a.Warnings})
	if err := handlers.OracleStrategicPatch(ctx, original, into, reference, []byte(q.Patch)); err != nil {
		return failed(err)
	}
	object, err := json.Marshal(into)
	must(err)
	a.Object = object
	return a
}

func (k *kind) empty() runtime.Object {
	if k.custom {
		object, _ := creater{}.New(k.gvk)
		return object
	}
	object, err := scheme.Scheme.New(k.gvk)
	must(err)
	return object
}

func (k *kind) decode(text []byte) runtime.Object {
	object := k.empty()
	if k.custom {
		must(object.(*unstructured.Unstructured).UnmarshalJSON(text))
	} else {
		must(json.Unmarshal(text, object))
	}
	return object
}

func (k *kind) story(steps []step, a *answer) {
	var live runtime.Object
	for _, one := range steps {
		object, err := k.write(one, live)
		if err != nil {
			a.Steps = append(a.Steps, failed(err))
			continue
		}
		accessor, err := meta.Accessor(object)
		must(err)
		accessor.SetUID("uid")
		live = object
		text, err := json.Marshal(live)
		must(err)
		a.Steps = append(a.Steps, answer{Object: text})
	}
}

func (k *kind) write(one step, live runtime.Object) (runtime.Object, error) {
	manager := k.managers[one.Subresource]
	before := live
	if before == nil {
		before = k.empty()
	}
	if one.Op == "apply" {
		patch := &unstructured.Unstructured{Object: map[string]interface{}{}}
		must(yaml.Unmarshal(one.Object, &patch.Object))
		return manager.Apply(before.DeepCopyObject(), patch, one.Manager, one.Force)
	}
	text := []byte(one.Object)
	if one.Op == "patch" && live != nil {
		stored, err := json.Marshal(live)
		must(err)
		text, err = jsonpatch.MergePatch(stored, text)
		must(err)
	}
	object := k.decode(text)
	accessor, err := meta.Accessor(object)
	must(err)
	if live != nil {
		accessor.SetUID("uid")
	}
	return manager.UpdateNoErrors(before.DeepCopyObject(), object, one.Manager), nil
}
