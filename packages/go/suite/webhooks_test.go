package suite

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// bodyBytesMax is the size of the largest review.
const bodyBytesMax = 4 << 20

// serveWebhooks serves handlers of documents with a certificate of its own; returns the URL and the bundle, which is the server's own
// leaf, as controller-runtime's envtest passes it.
func serveWebhooks(t *testing.T, handlers map[string]func([]byte) (any, error)) (string, []byte) {
	t.Helper()
	authority, err := newAuthority()
	check(t, err)
	signed, err := authority.server()
	check(t, err)
	certificate, err := tls.X509KeyPair(signed.certificate, signed.key)
	check(t, err)
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(io.LimitReader(r.Body, bodyBytesMax))
			var answer any
			if err == nil {
				answer, err = handler(body)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			// The server sees a broken answer.
			_ = json.NewEncoder(w).Encode(answer)
		})
	}
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, signed.certificate
}

// admission turns a function of a review's request into a handler.
func admission(answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) func([]byte) (any, error) {
	return func(body []byte) (any, error) {
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil {
			return nil, err
		}
		if review.Request == nil {
			return nil, fmt.Errorf("a review without a request: %s", body)
		}
		review.Response = answer(review.Request)
		review.Response.UID, review.Request = review.Request.UID, nil
		return review, nil
	}
}

// denied is a refusal as controller-runtime's webhooks answer it.
func denied(why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Message: why, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
	}}
}

// TestAdmissionWebhooks: webhooks that the suite installs change objects and refuse them.
func TestAdmissionWebhooks(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	client := clientset(t, env.config)
	ns := namespace(t, client)
	url, bundle := serveWebhooks(t, map[string]func([]byte) (any, error){
		"/mutate": admission(func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			kind := admissionv1.PatchTypeJSONPatch
			patch := []byte(`[{"op":"add","path":"/data","value":{"from":"webhook"}}]`)
			return &admissionv1.AdmissionResponse{Allowed: true, PatchType: &kind, Patch: patch}
		}),
		"/validate": admission(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var object corev1.ConfigMap
			if err := json.Unmarshal(request.Object.Raw, &object); err != nil || object.Data["from"] != "webhook" {
				return denied("not changed before")
			}
			if strings.HasPrefix(object.Name, "bad") {
				return denied("no bad names for " + request.UserInfo.Username)
			}
			return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"seen"}}
		}),
	})
	none := admissionregistrationv1.SideEffectClassNone
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		address := url + path
		return admissionregistrationv1.WebhookClientConfig{URL: &address, CABundle: bundle}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.suite.example", ClientConfig: at("/mutate"), Rules: rules, NamespaceSelector: selector,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.suite.example", ClientConfig: at("/validate"), Rules: rules, NamespaceSelector: selector,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	registrations := client.AdmissionregistrationV1()
	_, err := registrations.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	check(t, err)
	_, err = registrations.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{})
	check(t, err)
	maps := client.CoreV1().ConfigMaps(ns)
	// Servers take a moment to see their configurations.
	n := 0
	eventually(t, "both webhooks are called", func(ctx context.Context) (bool, error) {
		n++
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bad-%d", n)}}
		_, err := maps.Create(ctx, object, metav1.CreateOptions{})
		if err == nil || strings.Contains(err.Error(), "not changed before") {
			return false, nil
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `admission webhook "validate.suite.example" denied the request: no bad names for admin`) {
			return false, err
		}
		return true, nil
	})
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "good"}}, metav1.CreateOptions{})
	check(t, err)
	if made.Data["from"] != "webhook" {
		t.Errorf("made: %v", made)
	}
	check(t, registrations.ValidatingWebhookConfigurations().Delete(ctx, ns, metav1.DeleteOptions{}))
	check(t, registrations.MutatingWebhookConfigurations().Delete(ctx, ns, metav1.DeleteOptions{}))
}

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "suite.example", Version: "v1", Resource: "widgets"}
)

// conversionReview is apiextensions.k8s.io/v1's, whose package Debian has apart.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *conversionRequest  `json:"request,omitempty"`
	Response        *conversionResponse `json:"response,omitempty"`
}

type conversionRequest struct {
	UID               string                      `json:"uid"`
	DesiredAPIVersion string                      `json:"desiredAPIVersion"`
	Objects           []unstructured.Unstructured `json:"objects"`
}

type conversionResponse struct {
	UID              string                      `json:"uid"`
	ConvertedObjects []unstructured.Unstructured `json:"convertedObjects"`
	Result           metav1.Status               `json:"result"`
}

// convert moves the one field of a widget: spec.size in v1, spec.length in v2.
func convert(body []byte) (any, error) {
	var review conversionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	answer := &conversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	fields := map[string]string{"suite.example/v1": "size", "suite.example/v2": "length"}
	for _, object := range review.Request.Objects {
		from, to := fields[object.GetAPIVersion()], fields[review.Request.DesiredAPIVersion]
		value, _, err := unstructured.NestedFieldCopy(object.Object, "spec", from)
		if err != nil {
			return nil, err
		}
		unstructured.RemoveNestedField(object.Object, "spec", from)
		if err := unstructured.SetNestedField(object.Object, value, "spec", to); err != nil {
			return nil, err
		}
		object.SetAPIVersion(review.Request.DesiredAPIVersion)
		answer.ConvertedObjects = append(answer.ConvertedObjects, object)
	}
	review.Request, review.Response = nil, answer
	return review, nil
}

// TestDefinitions: a definition is installed, its versions are converted by the suite's webhook, and it is removed.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	client := dynamicClient(t, env.config)
	ns := namespace(t, clientset(t, env.config))
	url, bundle := serveWebhooks(t, map[string]func([]byte) (any, error){"/convert": convert})
	version := func(name, field string, isStored bool) any {
		return map[string]any{
			"name": name, "served": true, "storage": isStored,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec": map[string]any{"type": "object", "required": []any{field}, "properties": map[string]any{
					field: map[string]any{"type": "integer", "minimum": int64(1)},
				}},
			}}},
		}
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.suite.example"},
		"spec": map[string]any{
			"group": "suite.example", "scope": "Namespaced",
			"names":    map[string]any{"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
			"versions": []any{version("v1", "size", true), version("v2", "length", false)},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"},
				"clientConfig":             map[string]any{"url": url + "/convert", "caBundle": base64.StdEncoding.EncodeToString(bundle)},
			}},
		},
	}}
	_, err := client.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{})
	check(t, err)
	discoverer, err := discovery.NewDiscoveryClientForConfig(env.config)
	check(t, err)
	// As envtest waits.
	serves := func(version string) bool {
		list, err := discoverer.ServerResourcesForGroupVersion("suite.example/" + version)
		return err == nil && len(list.APIResources) > 0
	}
	eventually(t, "both versions are served", func(context.Context) (bool, error) { return serves("v1") && serves("v2"), nil })
	widget := func(name string, size int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "suite.example/v1", "kind": "Widget",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size},
		}}
	}
	made := client.Resource(widgets).Namespace(ns)
	_, err = made.Create(ctx, widget("a", 3), metav1.CreateOptions{})
	check(t, err)
	if _, err = made.Create(ctx, widget("b", 0), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a size of 0: %v", err)
	}
	second := widgets
	second.Version = "v2"
	found, err := client.Resource(second).Namespace(ns).Get(ctx, "a", metav1.GetOptions{})
	check(t, err)
	length, _, err := unstructured.NestedInt64(found.Object, "spec", "length")
	check(t, err)
	if length != 3 {
		t.Errorf("converted: %v", found)
	}
	check(t, client.Resource(definitions).Delete(ctx, "widgets.suite.example", metav1.DeleteOptions{}))
	eventually(t, "the definition is gone", func(ctx context.Context) (bool, error) {
		_, err := client.Resource(definitions).Get(ctx, "widgets.suite.example", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	eventually(t, "nothing is served", func(context.Context) (bool, error) { return !serves("v1") && !serves("v2"), nil })
}
