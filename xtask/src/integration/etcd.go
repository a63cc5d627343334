// Package etcd, beside the files of the original: starts setpoint for tests that look at what is
// stored.
package etcd

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/integration"
	"k8s.io/kubernetes/test/integration/framework"
)

// root is the prefix of the keys in etcd, which tests name.
const root = "/registry"

// served are the alpha features without which resources are not served.
var served = []featuregate.Feature{"GenericWorkload"}

// StartRealAPIServerOrDie starts a server that serves every resource and stores JSON. Other alpha
// features stay off: setpoint refuses those that it cannot turn on.
func StartRealAPIServerOrDie(t *testing.T, change ...func(*options.ServerRunOptions)) *APIServer {
	if feature.DefaultFeatureGate.Enabled("AllAlpha") {
		gates := featuregatetesting.FeatureOverrides{"AllAlpha": false}
		for _, name := range served {
			gates[name] = true
		}
		featuregatetesting.SetFeatureGatesDuringTest(t, feature.DefaultFeatureGate, gates)
	}
	var keys clientv3.KV
	closeKeys := func() error { return nil }
	modify := func(s *options.ServerRunOptions) {
		s.Etcd.StorageConfig.Prefix = root
		s.Etcd.DefaultStorageMediaType = runtime.ContentTypeJSON
		s.Authorization.Modes = []string{"RBAC"}
		s.Admission.GenericAdmission.DisablePlugins = []string{"ServiceAccount"}
		s.APIEnablement.RuntimeConfig["api/all"] = "true"
		for _, change := range change {
			change(s)
		}
		raw, client, err := integration.GetEtcdClients(s.Etcd.StorageConfig.Transport)
		if err != nil {
			t.Fatal(err)
		}
		keys, closeKeys = client, raw.Close
		if _, err := keys.Delete(context.Background(), root+"/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
	clients, config, stop := framework.StartTestServer(context.Background(), t, framework.TestServerSetup{ModifyServerRunOptions: modify})
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	CreateTestCRDs(t, apiextensionsclientset.NewForConfigOrDie(config), false, GetCustomResourceDefinitionData()...)
	_, lists, err := clients.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	return &APIServer{
		Client:    clients,
		Dynamic:   dynamic.NewForConfigOrDie(config),
		Config:    config,
		KV:        keys,
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Discovery())),
		Resources: GetResources(t, lists),
		Cleanup: func() {
			stop()
			closeKeys()
		},
	}
}
