//! Policies and webhooks in files, which no request can change.

use crate::admission_policies::{GROUP, MAPS, map, on};
use crate::admission_webhooks::{hook, plane, server};
use crate::https::{Answered, Ca, User, with_user};
use serde_json::{Value, json};
use setpoint::object::time::Clock;
use setpoint::registry::{AdmissionOptions, Feature, FeatureGates, RuntimeConfig};
use setpoint::runtime::metrics::Metrics;
use setpoint::{AdmissionConfiguration, ConfigMetrics, ControlPlaneBuilder};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

fn features() -> FeatureGates {
    FeatureGates::default().with(Feature::ManifestBasedAdmissionControlConfig, true)
}

/// Folders of manifests, one per plugin, and the configuration that names them.
struct Folders(TempDir);

impl Folders {
    fn new(plugins: &[(&str, &str)]) -> Self {
        let new = Self(tempfile::tempdir().unwrap());
        let entries = plugins.iter().map(|(plugin, kind)| {
            std::fs::create_dir(new.of(plugin)).unwrap();
            json!({"name": plugin, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind,
                "staticManifestsDir": new.of(plugin),
            }})
        });
        let entries: Value = entries.collect();
        let document = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": entries,
        });
        std::fs::write(new.0.path().join("config"), document.to_string()).unwrap();
        new
    }
    fn policies() -> Self {
        Self::new(&[
            ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration"),
            ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration"),
        ])
    }
    fn of(&self, plugin: &str) -> PathBuf {
        self.0.path().join(plugin)
    }
    /// Replaces a file at once.
    fn write(&self, plugin: &str, file: &str, objects: &[Value]) {
        let text: Vec<String> = objects.iter().map(Value::to_string).collect();
        let new = self.0.path().join("new");
        std::fs::write(&new, text.join("\n---\n")).unwrap();
        std::fs::rename(new, self.of(plugin).join(file)).unwrap();
    }
    fn config(&self) -> PathBuf {
        self.0.path().join("config")
    }
    /// A control plane with them, and its metrics.
    fn plane(&self) -> (ControlPlaneBuilder, Metrics) {
        let configuration = AdmissionConfiguration::load(&self.config(), features()).unwrap();
        let metrics = Metrics::new();
        let counted = ConfigMetrics::register(&metrics, "manifest_admission", Clock::wall(), "s");
        let worker = configuration.manifests().unwrap();
        let plane = plane()
            .manifests(worker.period(Duration::from_millis(20)).metrics(counted))
            .runtime_config(RuntimeConfig::with_gates("", features()).unwrap())
            .admission_plugins(configuration.apply(AdmissionOptions::default()).build().unwrap());
        (plane, metrics)
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec})
}
/// A policy that refuses creates of a resource if an expression is false, and its binding.
fn refusing(name: &str, resource: &str, expression: &str) -> [Value; 2] {
    let spec = json!({"matchConstraints": on(&[resource], &["CREATE"]),
        "validations": [{"expression": expression, "message": "refused"}]});
    let bound = json!({"policyName": name, "validationActions": ["Deny"]});
    [
        object("ValidatingAdmissionPolicy", name, spec),
        object("ValidatingAdmissionPolicyBinding", name, bound),
    ]
}

async fn until(metrics: &Metrics, plugin: &str, status: &str, n: usize) {
    let line = format!(
        r#"manifest_admission_config_controller_automatic_reloads_total{{apiserver_id_hash="s",plugin="{plugin}",status="{status}"}} {n}"#
    );
    while !metrics.prometheus().contains(&line) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn dry(user: &User, data: Value) -> Answered {
    user.send("POST", &format!("{MAPS}?dryRun=All"), &map("a", data)).await
}

#[tokio::test]
async fn policies_in_files_are_in_force_at_once_and_follow_their_files() {
    let folders = Folders::policies();
    let (validating, mutating) = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy");
    let name = "keys.static.k8s.io";
    let of_keys = refusing(name, "configmaps", "!('no' in object.data)");
    folders.write(validating, "keys.json", &of_keys);
    let (plane, metrics) = folders.plane();
    with_user(plane, async |user, _| {
        until(&metrics, validating, "success", 1).await;
        until(&metrics, mutating, "success", 1).await;
        let refused = dry(&user, json!({"no": "1"})).await.shown();
        let text = format!("422 configmaps \"a\" is forbidden: {validating} '{name}' with binding '{name}' denied request: refused");
        assert_eq!(refused, text);
        assert_eq!(user.send("GET", POLICIES, &Value::Null).await.ok()["items"], json!([]));

        let configuration = "Object{metadata: Object.metadata{labels: {'by': 'manifest'}}}";
        let spec = json!({"matchConstraints": on(&["configmaps"], &["CREATE"]),
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": configuration}}]});
        let mutation = object(mutating, name, spec);
        let bound =
            object("MutatingAdmissionPolicyBinding", name, json!({"policyName": name}));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [mutation, bound]});
        folders.write(mutating, "label.yaml", &[list]);
        until(&metrics, mutating, "success", 2).await;
        let labelled = dry(&user, json!({"yes": "1"})).await.ok();
        assert_eq!(labelled["metadata"]["labels"], json!({"by": "manifest"}));

        // What cannot be used changes nothing.
        let (good, [policy, _]) = (&of_keys[0], refusing("bad", "configmaps", "true"));
        folders.write(validating, "bad.yaml", &[policy]);
        until(&metrics, validating, "failure", 1).await;
        assert_eq!(dry(&user, json!({"no": "1"})).await.shown(), text);
        std::fs::remove_file(folders.of(validating).join("bad.yaml")).unwrap();
        until(&metrics, validating, "success", 2).await;

        folders.write(validating, "keys.json", std::slice::from_ref(good));
        until(&metrics, validating, "success", 3).await;
        dry(&user, json!({"no": "1"})).await.ok();
    })
    .await;
}

#[tokio::test]
async fn policies_in_files_see_writes_of_policies_and_nobody_can_have_their_names() {
    let folders = Folders::policies();
    let expression = "object.metadata.name != 'guarded'";
    let guard = refusing("guard.static.k8s.io", "validatingadmissionpolicies", expression);
    let all = refusing("all.static.k8s.io", "*", "request.name != 'nothing'");
    folders.write("ValidatingAdmissionPolicy", "guard.yaml", &[guard, all].concat());
    let (plane, _) = folders.plane();
    with_user(plane, async |user, _| {
        let [policy, binding] = refusing("guarded", "configmaps", "false");
        let refused = user.send("POST", POLICIES, &policy).await.shown();
        assert!(refused.starts_with("422 ") && refused.ends_with("refused"), "{refused}");
        // A binding of the API has no effect on a policy of a file.
        let mut bound = binding;
        bound["spec"]["policyName"] = "guard.static.k8s.io".into();
        user.create(&format!("{GROUP}/validatingadmissionpolicybindings"), &bound).await;

        let [policy, binding] = refusing("a.static.k8s.io", "configmaps", "false");
        let webhooks = json!({"metadata": {"name": "a.static.k8s.io"}});
        for (resource, mut object) in [
            ("validatingadmissionpolicies", policy),
            ("validatingadmissionpolicybindings", binding),
            ("validatingwebhookconfigurations", webhooks.clone()),
            ("mutatingwebhookconfigurations", webhooks),
        ] {
            object["metadata"]["name"] = "a.static.k8s.io".into();
            let refused = user.send("POST", &format!("{GROUP}/{resource}"), &object).await.shown();
            let text = r#"metadata.name: Invalid value: "a.static.k8s.io": names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API"#;
            assert!(refused.starts_with("422 ") && refused.ends_with(text), "{refused}");
        }
        // No policy sees reviews.
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "u", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        user.send("POST", path, &review).await.ok();
    })
    .await;
}

#[tokio::test]
async fn webhooks_in_files_are_called_before_others_and_for_configurations_too() {
    let (validating, mutating) = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook");
    let kind = "WebhookAdmissionConfiguration";
    let folders = Folders::new(&[(validating, kind), (mutating, kind)]);
    let ca = Ca::new();
    let (server, reviews) = server(&ca).await;
    let manifest = |kind: &str, path: &str, resources: &[&str]| {
        let hooks = [hook("h", server.config(path), resources)];
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "z.static.k8s.io"}, "webhooks": hooks})
    };
    let configurations = ["validatingwebhookconfigurations"];
    let denies = manifest("ValidatingWebhookConfiguration", "/deny", &configurations);
    folders.write(validating, "w.yaml", &[denies]);
    let counts = |path| manifest("MutatingWebhookConfiguration", path, &["configmaps"]);
    folders.write(mutating, "w.yaml", &[counts("/count")]);
    let (plane, metrics) = folders.plane();
    with_user(plane, async |user, _| {
        let counted = dry(&user, json!({})).await.ok();
        assert_eq!(counted["metadata"]["labels"], json!({"count": "1"}));
        let own = json!({"metadata": {"name": "own"}});
        let path = format!("{GROUP}/{}", configurations[0]);
        let refused = user.send("POST", &path, &own).await.shown();
        assert!(refused.contains("denied the request: not today"), "{refused}");

        let once = json!({"metadata": {"name": "a"},
            "webhooks": [hook("once", server.config("/once"), &["configmaps"])]});
        user.create(&format!("{GROUP}/mutatingwebhookconfigurations"), &once).await;
        reviews.take();
        let dry_run = format!("{MAPS}?dryRun=All");
        let last = Mutex::new(Vec::new());
        let are_both = |_: &Answered| {
            let paths = reviews.take().into_iter().map(|(path, _)| path);
            *last.lock().unwrap() = paths.collect();
            last.lock().unwrap().len() == 2
        };
        user.until("POST", &dry_run, &map("a", json!({})), are_both).await;
        assert_eq!(*last.lock().unwrap(), ["/count", "/once"]);

        folders.write(mutating, "w.yaml", &[counts("/allow")]);
        until(&metrics, mutating, "success", 2).await;
        let once = dry(&user, json!({})).await.ok();
        assert_eq!(once["metadata"]["labels"], json!({"once": "yes"}));
    })
    .await;
}

#[test]
fn a_server_does_not_start_with_manifests_that_are_refused() {
    let folders = Folders::policies();
    let plugin = "ValidatingAdmissionPolicy";
    let load = |features| {
        let outcome = AdmissionConfiguration::load(&folders.config(), features);
        let error = outcome.map(drop).unwrap_err();
        setpoint::object::error::chain(&error)
    };
    let shown = |path: &Path| format!("{:?}", path.display().to_string());
    folders.write(plugin, "a.yaml", &[json!({"a": "b"})]);
    let file = folders.of(plugin).join("a.yaml");
    assert_eq!(
        load(features()),
        format!(
            r#"couldn't init admission plugin "{plugin}": failed to load static manifests from {}: error loading {}: Object 'Kind' is missing in '{{"a":"b"}}'"#,
            shown(&folders.of(plugin)),
            file.display()
        )
    );
    let error = load(FeatureGates::default());
    assert!(
        error.contains("requires the ManifestBasedAdmissionControlConfig feature gate"),
        "{error}"
    );
    std::fs::remove_dir_all(folders.of(plugin)).unwrap();
    let error = load(features());
    let text = format!(
        "staticManifestsDir: Invalid value: {}: unable to read: ",
        shown(&folders.of(plugin))
    );
    assert!(error.contains(&text), "{error}");
    std::fs::write(folders.of(plugin), "").unwrap();
    let error = load(features());
    assert!(error.ends_with(": must be a directory"), "{error}");
}
