// Laid over Kubernetes' package of request handlers by `cargo xtask patches`, to reach what the
// handler of PATCH does to an object without a server around it.
package handlers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// OraclePatch patches a document, and returns the strict decoding errors of the patch.
func OraclePatch(kind types.PatchType, document, patch []byte) ([]byte, []error, error) {
	asked := &patcher{patchType: kind, patchBytes: patch, validationDirective: metav1.FieldValidationWarn}
	return (&jsonPatcher{patcher: asked}).applyJSPatch(document)
}

// OracleStrategicPatch patches an object of a built-in type. Unknown fields become warnings of the
// context.
func OracleStrategicPatch(ctx context.Context, original, into, reference runtime.Object, patch []byte) error {
	return strategicPatchObject(ctx, noDefaults{}, original, patch, into, reference, metav1.FieldValidationWarn)
}
