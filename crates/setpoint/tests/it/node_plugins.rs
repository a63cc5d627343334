//! Admission plugins that compare pods with their nodes, and the one that asks about images.

use crate::admission::{PODS, pod, with_admission, with_plane};
use crate::remote::Reviewer;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::registry::AdmissionOptions;
use setpoint::remote::ImagePolicyWebhook;
use std::sync::Arc;

const NODES: &str = "/api/v1/nodes";

fn node(name: &str, zone: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {
            "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r", "other": "x",
        }},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}},
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_zone_of_its_node() {
    with_admission(AdmissionOptions::default(), async |admin| {
        admin.create(NODES, &node("n1", "z1")).await;
        let mut early = pod("early", json!({"nodeName": "n1"}));
        early["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "own", "app": "a"});
        let early = admin.create(PODS, &early).await;
        assert_eq!(
            early["metadata"]["labels"],
            json!({
                "app": "a", "topology.kubernetes.io/region": "r",
                "topology.kubernetes.io/zone": "z1",
            })
        );
        admin.create(PODS, &pod("late", json!({}))).await;
        let binding =
            json!({"metadata": {"name": "late"}, "target": {"kind": "Node", "name": "n1"}});
        admin.create(&format!("{PODS}/late/binding"), &binding).await;
        let late = admin.get(&format!("{PODS}/late")).await;
        assert_eq!(late["metadata"]["labels"]["topology.kubernetes.io/zone"], "z1");
        assert_eq!(late["metadata"]["labels"].get("other"), None);
        // A node that nobody has made yet has no zone.
        let unknown = admin.create(PODS, &pod("unknown", json!({"nodeName": "n2"}))).await;
        assert_eq!(unknown["metadata"].get("labels"), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_grows_no_further_than_its_node() {
    with_admission(AdmissionOptions::default(), async |admin| {
        admin.create(NODES, &node("n1", "z1")).await;
        let with = |cpu: &str| {
            json!([{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}])
        };
        for (name, node) in [("a", "n1"), ("b", "n2")] {
            let spec = json!({"nodeName": node, "containers": with("1")});
            admin.create(PODS, &pod(name, spec)).await;
        }
        let resize = async |name: &str, cpu: &str| {
            let resized = json!({"spec": {"containers": with(cpu)}});
            admin.patch(&format!("{PODS}/{name}/resize"), &resized).await
        };
        assert_eq!(resize("a", "1500m").await.code, 200);
        assert_eq!(
            resize("a", "3").await.refusal(),
            (403, r#"pods "a" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"#)
        );
        assert_eq!(
            resize("b", "1500m").await.refusal(),
            (403, r#"pods "b" is forbidden: node "n2" not found"#)
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn others_may_be_kept_away_from_a_node_only() {
    let options = AdmissionOptions::default().enable("LimitPodHardAntiAffinityTopology");
    with_admission(options, async |admin| {
        let with = |key: &str| {
            let term = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": key});
            let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            json!({"affinity": {"podAntiAffinity": terms}})
        };
        admin.create(PODS, &pod("a", with("kubernetes.io/hostname"))).await;
        assert_eq!(
            admin.post(PODS, &pod("b", with("zone"))).await.refusal(),
            (403, r#"pods "b" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed"#)
        );
    })
    .await;
}

#[tokio::test]
async fn another_server_decides_about_images() {
    let reviewer = Reviewer::start(|spec| {
        assert_eq!(spec["namespace"], "default");
        match spec["containers"][0]["image"].as_str() {
            Some("good") => (200, json!({"allowed": true, "auditAnnotations": {"by": "x"}})),
            Some("bad") => (200, json!({"allowed": false, "reason": "it is old"})),
            _ => (400, Value::Null),
        }
    })
    .await;
    let policy = |allows: bool| {
        let file = reviewer.kubeconfig();
        json!({"imagePolicy": {"kubeConfigFile": file, "defaultAllow": allows}})
    };
    let name = "ImagePolicyWebhook";
    assert!(AdmissionOptions::default().enable(name).build().is_err());
    for allows in [false, true] {
        let plugin = ImagePolicyWebhook::open(&policy(allows)).await.unwrap();
        let options = AdmissionOptions::default().enable(name).provide(Arc::new(plugin));
        let plane =
            ControlPlane::builder().simulated(0).admission_plugins(options.build().unwrap());
        let n_before = reviewer.n_seen();
        with_plane(plane, async |admin| {
            let with = |image: &str| json!({"containers": [{"name": "c", "image": image}]});
            admin.create(PODS, &pod("a", with("good"))).await;
            admin.create(PODS, &pod("b", with("good"))).await;
            assert_eq!(
                admin.post(PODS, &pod("c", with("bad"))).await.refusal(),
                (403, r#"pods "c" is forbidden: image policy webhook backend denied one or more images: it is old"#)
            );
            let failed = admin.post(PODS, &pod("d", with("other"))).await;
            assert_eq!(failed.code, if allows { 201 } else { 403 });
        })
        .await;
        // The answer about the second pod was known.
        assert_eq!(reviewer.n_seen() - n_before, 3);
    }
}
