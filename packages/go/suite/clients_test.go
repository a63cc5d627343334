package suite

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// answers records the content types of a client's answers.
type answers struct {
	http.RoundTripper
	mutex sync.Mutex
	types map[string]bool
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(request)
	if err == nil {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
		a.types[kind] = true
	}
	return answer, err
}

// TestEncodings: every verb of a typed client, in JSON, in protobuf and, if the server has it, in CBOR.
func TestEncodings(t *testing.T) {
	encodings := []string{"application/json", "application/vnd.kubernetes.protobuf"}
	if slices.Contains(apiServerFlags(), "--feature-gates=CBORServingAndStorage=true") {
		encodings = append(encodings, "application/cbor")
	}
	for _, encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			config := rest.CopyConfig(env.config)
			config.ContentType = encoding
			seen := &answers{types: map[string]bool{}}
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				seen.RoundTripper = next
				return seen
			})
			client := clientset(t, config)
			maps := client.CoreV1().ConfigMaps(namespace(t, client))
			before, err := maps.List(ctx, metav1.ListOptions{})
			check(t, err)
			watch, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
			check(t, err)
			defer watch.Stop()
			made, err := maps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "v"}},
				BinaryData: map[string][]byte{"b": {0, 255}},
			}, metav1.CreateOptions{})
			check(t, err)
			made.Data = map[string]string{"k": "1"}
			updated, err := maps.Update(ctx, made, metav1.UpdateOptions{})
			check(t, err)
			patch := []byte(`{"data":{"k":"2"}}`)
			patched, err := maps.Patch(ctx, "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			check(t, err)
			if patched.Data["k"] != "2" || string(patched.BinaryData["b"]) != "\x00\xff" {
				t.Errorf("patched: %v", patched)
			}
			made.Data["k"] = "3"
			if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("an update of an old version: %v", err)
			}
			list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "k=v"})
			check(t, err)
			if len(list.Items) != 1 || list.Items[0].ResourceVersion == updated.ResourceVersion {
				t.Errorf("listed: %v", list)
			}
			check(t, maps.Delete(ctx, "a", metav1.DeleteOptions{}))
			if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a deleted object: %v", err)
			}
			var events []string
			for len(events) < 4 {
				event := <-watch.ResultChan()
				if event.Object == nil {
					t.Fatalf("the watch ended after %v", events)
				}
				// Controllers may add some of their own.
				if object, is := event.Object.(*corev1.ConfigMap); is && object.Name == "a" {
					events = append(events, string(event.Type))
				}
			}
			if got := strings.Join(events, " "); got != "ADDED MODIFIED MODIFIED DELETED" {
				t.Errorf("events: %s", got)
			}
			seen.mutex.Lock()
			defer seen.mutex.Unlock()
			if !seen.types[encoding] {
				t.Errorf("answers came in %v", seen.types)
			}
		})
	}
}

// TestInformers: a factory's informers follow changes, and its listers and indexes find them.
func TestInformers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	client := clientset(t, env.config)
	ns := namespace(t, client)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	secrets := factory.Core().V1().Secrets()
	events := make(chan string, 16)
	name := func(object any) string {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			return err.Error()
		}
		return strings.TrimPrefix(key, ns+"/")
	}
	_, err := secrets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { events <- "+" + name(object) },
		UpdateFunc: func(_, object any) { events <- "~" + name(object) },
		DeleteFunc: func(object any) { events <- "-" + name(object) },
	})
	check(t, err)
	check(t, secrets.Informer().AddIndexers(cache.Indexers{"type": func(object any) ([]string, error) {
		return []string{string(object.(*corev1.Secret).Type)}, nil
	}}))
	made := client.CoreV1().Secrets(ns)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: "suite/" + corev1.SecretType(name)}
	}
	_, err = made.Create(ctx, secret("before"), metav1.CreateOptions{})
	check(t, err)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), secrets.Informer().HasSynced) {
		t.Fatal("it does not sync")
	}
	_, err = made.Create(ctx, secret("after"), metav1.CreateOptions{})
	check(t, err)
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	_, err = made.Patch(ctx, "after", types.MergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	check(t, made.Delete(ctx, "before", metav1.DeleteOptions{}))
	for _, wanted := range []string{"+before", "+after", "~after", "-before"} {
		select {
		case got := <-events:
			if got != wanted {
				t.Fatalf("%s instead of %s", got, wanted)
			}
		case <-ctx.Done():
			t.Fatalf("no %s", wanted)
		}
	}
	selected, err := secrets.Lister().Secrets(ns).List(labels.SelectorFromSet(labels.Set{"a": "b"}))
	check(t, err)
	indexed, err := secrets.Informer().GetIndexer().ByIndex("type", "suite/after")
	check(t, err)
	if len(selected) != 1 || len(indexed) != 1 {
		t.Errorf("selected %v, indexed %v", selected, indexed)
	}
}

// TestLeaderElection: one of two leads; the other one follows as soon as it gives up.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	client := clientset(t, env.config)
	ns := namespace(t, client)
	led := make(chan string, 2)
	candidate := func(ctx context.Context, identity string) chan struct{} {
		ended := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "leader"},
				Client:    client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{
					Identity: identity,
				},
			},
			// Much shorter than the test may take: a renewal that is cancelled half way makes the
			// release conflict, and then the lease has to end.
			LeaseDuration: patience / 6, RenewDeadline: patience / 10, RetryPeriod: 50 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { led <- identity },
				OnStoppedLeading: func() {},
			},
		})
		check(t, err)
		go func() {
			defer close(ended)
			elector.Run(ctx)
		}()
		return ended
	}
	leads := func(wanted string) {
		t.Helper()
		select {
		case got := <-led:
			if got != wanted {
				t.Fatalf("%s leads instead of %s", got, wanted)
			}
		case <-ctx.Done():
			t.Fatalf("%s does not lead", wanted)
		}
	}
	first, giveUp := context.WithCancel(ctx)
	firstEnded := candidate(first, "one")
	leads("one")
	second, end := context.WithCancel(ctx)
	secondEnded := candidate(second, "two")
	giveUp()
	<-firstEnded
	leads("two")
	var lease *coordinationv1.Lease
	lease, err := client.CoordinationV1().Leases(ns).Get(ctx, "leader", metav1.GetOptions{})
	check(t, err)
	if lease.Spec.LeaseTransitions == nil || *lease.Spec.LeaseTransitions < 1 {
		t.Errorf("the lease: %v", lease.Spec)
	}
	end()
	<-secondEnded
}

// TestUsers: certificates and impersonated users have what roles allow them.
func TestUsers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	admin := clientset(t, env.config)
	ns := namespace(t, admin)
	_, err := admin.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = admin.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}, metav1.CreateOptions{})
	check(t, err)
	certified, err := env.user("jane", "readers")
	check(t, err)
	impersonated := rest.CopyConfig(env.config)
	impersonated.Impersonate = rest.ImpersonationConfig{UserName: "joe", Groups: []string{"readers"}}
	for user, config := range map[string]*rest.Config{"jane": certified, "joe": impersonated} {
		client := clientset(t, config)
		eventually(t, user+" may list", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
			if apierrors.IsForbidden(err) {
				return false, nil
			}
			return err == nil, err
		})
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "`+user+`" cannot create resource "configmaps"`) {
			t.Errorf("%s creates: %v", user, err)
		}
		_, err = client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s lists elsewhere: %v", user, err)
		}
	}
	// Who may not impersonate cannot.
	certified.Impersonate = rest.ImpersonationConfig{UserName: "admin", Groups: []string{"system:masters"}}
	_, err = clientset(t, certified).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("jane impersonates: %v", err)
	}
}
