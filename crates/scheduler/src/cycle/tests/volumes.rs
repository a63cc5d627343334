//! Claims, volumes and disks.

use super::*;
use crate::view::{Claim, LateClass, Volume};

/// A claim of this size in a class.
fn claim(class: &str, size: &str, more: Value) -> Value {
    let mut claim = json!({"metadata": {"annotations": {}}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }});
    for (member, value) in more.as_object().into_iter().flatten() {
        claim[member] = value.clone();
    }
    claim
}

/// A free volume of this size on a host.
fn local(size: &str, host: &str) -> Value {
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
    json!({"status": {"phase": "Available"}, "spec": {
        "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
    }})
}

impl Cluster {
    /// Two nodes with local volumes, and a class of volumes that are made for nodes in zone x.
    fn with_volumes() -> Self {
        let mut cluster = Self::new(&[zoned("a", "x"), zoned("b", "y")]);
        let view = &mut cluster.state.view;
        for (name, volume) in
            [("a", local("5Gi", "a")), ("b1", local("3Gi", "b")), ("b2", local("9Gi", "b"))]
        {
            view.put_volume(&name.into(), Some(Volume::read(&volume)));
        }
        let zone = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["x"]}]}]);
        let late = "WaitForFirstConsumer";
        let local = json!({
            "volumeBindingMode": late, "provisioner": "kubernetes.io/no-provisioner",
        });
        let made = json!({
            "volumeBindingMode": late, "provisioner": "p", "allowedTopologies": zone,
        });
        for (name, class) in [("local", local), ("made", made)] {
            let class = LateClass::read(&class).unwrap();
            view.late_classes.insert(name.into(), Arc::new(class));
        }
        cluster
    }

    fn claim(&mut self, name: &str, claim: &Value) -> Value {
        let key = Request::new("default", name);
        self.state.view.put_claim(&key, Some(Claim::read(claim)));
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})
    }

    fn promised(&self, claim: &str) -> Option<Arc<str>> {
        self.state.view.promise(&Request::new("default", claim))?.volume.clone()
    }
}

#[test]
fn a_claim_that_waits_gets_the_smallest_volume_of_the_node() {
    let mut cluster = Cluster::with_volumes();
    let large = cluster.claim("large", &claim("local", "8Gi", Value::Null));
    assert_eq!(cluster.schedule(json!({}), large.clone()), "b");
    assert_eq!(cluster.promised("large").as_deref(), Some("b2"));
    // Another pod of the claim goes where its volume is.
    assert_eq!(cluster.schedule(json!({}), large), "b");
    let mut small = cluster.claim("small", &claim("local", "1Gi", Value::Null));
    small["nodeSelector"] = json!({"zone": "y"});
    assert_eq!(cluster.schedule(json!({}), small), "b");
    assert_eq!(cluster.promised("small").as_deref(), Some("b1"));
    let third = cluster.claim("third", &claim("local", "1Gi", Value::Null));
    assert_eq!(cluster.schedule(json!({}), third.clone()), "a");
    let fourth = cluster.claim("fourth", &claim("local", "1Gi", Value::Null));
    let refused = cluster.schedule(json!({}), fourth.clone());
    let why = "2 node(s) didn't find available persistent volumes to bind";
    assert!(refused.contains(why), "{refused}");
    // A pod that goes before its claim is bound leaves the volume to others.
    let pod = cluster.pod("", json!({}), third);
    cluster.state.remove_pod(&Request::new("default", "p4"));
    assert_eq!(cluster.promised("third"), None);
    assert_eq!(cluster.schedule(json!({}), fourth), "a");
    assert!(matches!(cluster.decide(&pod), Verdict::Refuse(_)));
    // What is bound needs no promise.
    let bound = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
    let mut bound = claim("local", "1Gi", json!({"metadata": bound}));
    bound["spec"]["volumeName"] = "b1".into();
    cluster.claim("small", &bound);
    assert_eq!(cluster.promised("small"), None);
}

#[test]
fn two_claims_of_a_pod_get_two_volumes_of_one_node() {
    let mut cluster = Cluster::with_volumes();
    cluster.claim("one", &claim("local", "2Gi", Value::Null));
    cluster.claim("two", &claim("local", "1Gi", Value::Null));
    let volume = |claim: &str| json!({"persistentVolumeClaim": {"claimName": claim}});
    let both = json!({"volumes": [volume("one"), volume("two")]});
    assert_eq!(cluster.schedule(json!({}), both), "b");
    assert_eq!(cluster.promised("two").as_deref(), Some("b1"), "the smaller one first");
    assert_eq!(cluster.promised("one").as_deref(), Some("b2"));
}

#[test]
fn the_claim_of_an_ephemeral_volume_must_be_the_pods() {
    let mut cluster = Cluster::with_volumes();
    let spec = json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]});
    let owned = |uid: &str, more: Value| {
        let mut owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
        for (member, value) in more.as_object().into_iter().flatten() {
            owner[member] = value.clone();
        }
        let metadata = json!({"annotations": {}, "ownerReferences": [owner]});
        claim("made", "1Gi", json!({"metadata": metadata}))
    };
    let refused = cluster.schedule(json!({}), spec.clone());
    let why =
        r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p1-v""#;
    assert!(refused.contains(why), "{refused}");
    for (name, foreign) in [
        ("p2-v", claim("made", "1Gi", Value::Null)),
        ("p3-v", owned("uid3", Value::Null)),
        ("p4-v", owned("uid1", json!({"controller": true}))),
    ] {
        cluster.claim(name, &foreign);
        let refused = cluster.schedule(json!({}), spec.clone());
        let pod = name.trim_end_matches("-v");
        let why =
            format!("PVC default/{name} was not created for pod default/{pod} (pod is not owner)");
        assert!(refused.contains(&why), "{refused}");
    }
    cluster.claim("p5-v", &owned("uid5", json!({"controller": true})));
    assert_eq!(cluster.schedule(json!({}), spec), "a");
}

#[test]
fn volumes_are_made_where_the_class_and_an_earlier_choice_say() {
    let mut cluster = Cluster::with_volumes();
    let made = cluster.claim("made", &claim("made", "1Gi", Value::Null));
    assert_eq!(cluster.schedule(json!({}), made), "a");
    assert_eq!(cluster.promised("made"), None);
    let chosen = |node: &str| {
        let annotations = json!({"volume.kubernetes.io/selected-node": node});
        claim("made", "1Gi", json!({"metadata": {"annotations": annotations}}))
    };
    let pod = cluster.claim("chosen", &chosen("b"));
    assert_eq!(cluster.schedule(json!({}), pod), "b");
    let pod = cluster.claim("gone", &chosen("gone"));
    assert_eq!(cluster.schedule(json!({}), pod), "a");
    let mut named = claim("local", "1Gi", Value::Null);
    named["spec"]["volumeName"] = "b1".into();
    let named = cluster.claim("named", &named);
    let refused = cluster.schedule(json!({}), named);
    assert!(refused.contains("pod has unbound immediate PersistentVolumeClaims"), "{refused}");
}

#[test]
fn a_claim_for_one_pod_is_used_by_one_pod() {
    let mut cluster = Cluster::with_volumes();
    let mut alone = claim("made", "1Gi", Value::Null);
    alone["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let spec = cluster.claim("alone", &alone);
    assert_eq!(cluster.schedule(json!({}), spec.clone()), "a");
    let refused = cluster.schedule(json!({}), spec.clone());
    let why = "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with \
        ReadWriteOncePod access mode already in-use by another pod.";
    assert!(refused.starts_with(why), "{refused}");
    // A more important pod takes it.
    let urgent = json!({"priority": 10, "volumes": spec["volumes"]});
    let pod = cluster.pod("", json!({}), urgent);
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("it is in use") };
    let candidate = refused.preempted.unwrap();
    assert_eq!((&*candidate.node, candidate.victims.len()), ("a", 1));
    assert_eq!(&*candidate.victims[0].key.name, "p1");
    cluster.state.remove_pod(&Request::new("default", "p1"));
    assert!(matches!(cluster.decide(&pod), Verdict::Place(_)));
}

#[test]
fn the_same_disk_is_used_by_one_pod_of_a_node() {
    let mut cluster = Cluster::new(&[node("a", "4"), node("b", "4")]);
    let disk = |read_only: bool| json!({"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": read_only}}]});
    let mut placed = [false, true].map(|_| cluster.schedule(json!({}), disk(false)));
    placed.sort();
    assert_eq!(placed, ["a", "b"]);
    let refused = cluster.schedule(json!({}), disk(true));
    assert!(refused.contains("2 node(s) had no available disk"), "{refused}");
    let mut readers = Cluster::new(&[node("a", "4")]);
    assert_eq!(readers.schedule(json!({}), disk(true)), "a");
    assert_eq!(readers.schedule(json!({}), disk(true)), "a");
}

/// A volume of the driver `csi.example.com`, and a claim that is bound to it.
fn bound(cluster: &mut Cluster, name: &str) -> Value {
    let csi = json!({"driver": "csi.example.com", "volumeHandle": name});
    let volume = json!({"status": {"phase": "Bound"}, "spec": {"claimRef": {}, "csi": csi}});
    cluster.state.view.put_volume(&name.into(), Some(Volume::read(&volume)));
    let metadata = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
    let mut claim = claim("", "1Gi", json!({"metadata": metadata}));
    claim["spec"]["volumeName"] = name.into();
    cluster.claim(name, &claim)
}

/// `NodeVolumeLimits` was missing: a node got more volumes than its driver can attach.
#[test]
fn a_node_takes_as_many_volumes_of_a_driver_as_its_csi_node_says() {
    let mut cluster = Cluster::with_volumes();
    let on_b = |mut spec: Value| {
        spec["nodeSelector"] = json!({"zone": "y"});
        spec
    };
    let drivers = json!([
        {"name": "csi.example.com", "nodeID": "b", "allocatable": {"count": 2}},
        {"name": "other.example.com", "nodeID": "b"},
    ]);
    cluster.state.view.put_csi_node(&"b".into(), Some(&json!({"spec": {"drivers": drivers}})));
    let one = on_b(bound(&mut cluster, "one"));
    assert_eq!(cluster.schedule(json!({}), one.clone()), "b");
    assert_eq!(cluster.schedule(json!({}), one), "b", "the same volume counts once");
    let two = on_b(bound(&mut cluster, "two"));
    assert_eq!(cluster.schedule(json!({}), two), "b");
    let three = on_b(bound(&mut cluster, "three"));
    let full = "1 node(s) exceed max volume count";
    let refused = cluster.schedule(json!({}), three.clone());
    assert!(refused.contains(full), "{refused}");
    // A volume that is still attached counts although its pods are gone.
    cluster.state.remove_pod(&Request::new("default", "p3"));
    let attachment = json!({"spec": {
        "attacher": "csi.example.com", "nodeName": "b", "source": {"persistentVolumeName": "two"},
    }});
    cluster.state.view.put_attachment(&"x".into(), Some(&attachment));
    let refused = cluster.schedule(json!({}), three.clone());
    assert!(refused.contains(full), "{refused}");
    cluster.state.view.put_attachment(&"x".into(), None);
    assert_eq!(cluster.schedule(json!({}), three), "b");
    // A claim that waits counts for the driver of its class.
    let class =
        json!({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "csi.example.com"});
    let class = Arc::new(LateClass::read(&class).unwrap());
    cluster.state.view.late_classes.insert("csi".into(), class);
    let late = on_b(cluster.claim("late", &claim("csi", "1Gi", Value::Null)));
    let refused = cluster.schedule(json!({}), late.clone());
    assert!(refused.contains(full), "{refused}");
    cluster.state.view.put_csi_node(&"b".into(), None);
    assert_eq!(cluster.schedule(json!({}), late), "b");
}
