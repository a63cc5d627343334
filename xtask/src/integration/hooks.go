package framework

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// unset stands where a test has set no authenticator or authorizer.
type unset struct{}

func (unset) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return nil, false, nil
}

func (unset) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

// hooks serves the authenticator and the authorizer of a test as webhooks.
type hooks struct {
	generic *genericapiserver.Config
	flags   []string
	server  *httptest.Server
}

func newHooks() *hooks {
	generic := &genericapiserver.Config{LoopbackClientConfig: &rest.Config{BearerToken: "loopback"}}
	generic.Authentication.Authenticator = unset{}
	generic.Authorization.Authorizer = unset{}
	return &hooks{generic: generic}
}

// collect lets a test change a configuration, of which some is kept.
func (h *hooks) collect(t testing.TB, s *options.ServerRunOptions, modify func(*controlplane.Config)) {
	accounts := s.Authentication.ServiceAccounts
	config := &controlplane.Config{}
	config.ControlPlane.Generic = h.generic
	config.ControlPlane.Extra.ServiceAccountMaxExpiration = accounts.MaxExpiration
	if key, err := keyutil.PrivateKeyFromFile(s.ServiceAccountSigningKeyFile); err == nil {
		if key, ok := key.(*ecdsa.PrivateKey); ok && len(accounts.Issuers) > 0 {
			config.ControlPlane.Extra.ServiceAccountIssuer, _ = serviceaccount.JWTTokenGenerator(accounts.Issuers[0], key)
		}
	}
	defer func() {
		if reason := recover(); reason != nil {
			t.Logf("the test changes more of the inside of a kube-apiserver: %v", reason)
		}
		if longest := config.ControlPlane.Extra.ServiceAccountMaxExpiration; longest != accounts.MaxExpiration {
			h.flags = append(h.flags, "--service-account-max-token-expiration="+longest.String())
		}
	}()
	modify(config)
}

// needsToken says whether the test's authenticator knows clients without a token: a webhook is
// asked about tokens only.
func (h *hooks) needsToken() bool {
	return h.generic.LoopbackClientConfig.BearerToken == ""
}

// serve gives the flags, and the modes of authorization before those of the test.
func (h *hooks) serve(folder string) (flags, modes []string, err error) {
	flags = h.flags
	mux := http.NewServeMux()
	h.server = httptest.NewServer(mux)
	if authn := h.generic.Authentication.Authenticator; authn != (unset{}) {
		mux.HandleFunc("/authn", func(w http.ResponseWriter, r *http.Request) { authenticate(w, r, authn) })
		file, err := h.kubeconfig(folder, "authn")
		if err != nil {
			return nil, nil, err
		}
		flags = append(flags,
			"--authentication-token-webhook-config-file="+file,
			"--authentication-token-webhook-cache-ttl=0s",
			"--authentication-token-webhook-version=v1")
	}
	if authz := h.generic.Authorization.Authorizer; authz != (unset{}) {
		mux.HandleFunc("/authz", func(w http.ResponseWriter, r *http.Request) { authorize(w, r, authz) })
		file, err := h.kubeconfig(folder, "authz")
		if err != nil {
			return nil, nil, err
		}
		modes = append(modes, "Webhook")
		flags = append(flags,
			"--authorization-webhook-config-file="+file,
			"--authorization-webhook-version=v1",
			"--authorization-webhook-cache-authorized-ttl=1ns",
			"--authorization-webhook-cache-unauthorized-ttl=1ns")
	}
	return flags, modes, nil
}

func (h *hooks) stop() {
	if h.server != nil {
		h.server.Close()
	}
}

func (h *hooks) kubeconfig(folder, name string) (string, error) {
	file := filepath.Join(folder, name)
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": "%s/%s"}}],
"users": [{"name": "c", "user": {}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, h.server.URL, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

func authenticate(w http.ResponseWriter, r *http.Request, authn authenticator.Request) {
	var review authentication.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := (&http.Request{Header: http.Header{}}).WithContext(r.Context())
	request.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	found, ok, err := authn.AuthenticateRequest(request)
	review.Status = authentication.TokenReviewStatus{Authenticated: ok && err == nil}
	if err != nil {
		review.Status.Error = err.Error()
	} else if ok {
		who := found.User
		review.Status.User = authentication.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
		review.Status.User.Extra = map[string]authentication.ExtraValue{}
		for key, values := range who.GetExtra() {
			review.Status.User.Extra[key] = values
		}
		review.Status.Audiences = review.Spec.Audiences
	}
	answer(w, review)
}

func authorize(w http.ResponseWriter, r *http.Request, authz authorizer.Authorizer) {
	var review authorization.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	spec := review.Spec
	who := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		who.Extra[key] = values
	}
	asked := authorizer.AttributesRecord{User: who}
	if on := spec.NonResourceAttributes; on != nil {
		asked.Verb, asked.Path = on.Verb, on.Path
	}
	if on := spec.ResourceAttributes; on != nil {
		asked.ResourceRequest, asked.Verb = true, on.Verb
		asked.Namespace, asked.Name = on.Namespace, on.Name
		asked.APIGroup, asked.APIVersion = on.Group, on.Version
		asked.Resource, asked.Subresource = on.Resource, on.Subresource
		if labels := on.LabelSelector; labels != nil && len(labels.Requirements) > 0 {
			selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: labels.Requirements})
			if err == nil {
				asked.LabelSelectorRequirements, _ = selector.Requirements()
			}
		}
	}
	decision, reason, err := authz.Authorize(r.Context(), asked)
	review.Status = authorization.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	answer(w, review)
}

func answer(w http.ResponseWriter, review any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(review)
}
