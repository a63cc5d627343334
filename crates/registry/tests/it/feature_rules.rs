//! Rules that features turn on and off, and members that they keep.
use crate::admission::enforce;
use crate::features::{both, pod, serving, stop};
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{Feature, FeatureGates};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const DEVICE_CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads";

/// A new object is accepted with a feature off and on, or refused for a reason.
async fn check(
    feature: Feature,
    path: &str,
    object: Value,
    [off, on]: [Result<(), &str>; 2],
) -> [Option<Value>; 2] {
    let servers = both(feature).await;
    let mut made = [None, None];
    for ((server, expected), made) in servers.iter().zip([off, on]).zip(&mut made) {
        let answer = server.create(path, object.clone()).await;
        match expected {
            Ok(()) => *made = Some(answer.unwrap()),
            Err(why) => {
                let error = refused(answer);
                assert!(error.contains(why), "{feature:?}: {why}: {error}");
            }
        }
    }
    stop(servers).await;
    made
}

#[tokio::test(start_paused = true)]
async fn old_forms_of_addresses_and_names_are_refused_or_not() {
    let zeros = Err("must not have leading 0s");
    let strict = Feature::StrictIPCIDRValidation;
    let spec = json!({"hostAliases": [{"ip": "010.0.0.1", "hostnames": ["a"]}]});
    check(strict, PODS, pod("p", spec), [Ok(()), zeros]).await;
    let spec = json!({"hostAliases": [{"ip": "010.0.0.256", "hostnames": ["a"]}]});
    check(strict, PODS, pod("p", spec), [Err("must be a valid IP address"); 2]).await;
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/08"}}]}]}});
    check(strict, POLICIES, policy, [Ok(()), zeros]).await;

    let relaxed = Feature::RelaxedServiceNameValidation;
    let service = json!({"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}});
    let letter = Err("a DNS-1035 label must consist of");
    check(relaxed, SERVICES, service, [letter, Ok(())]).await;
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {
        "service": {"name": "1a", "port": {"number": 80}}}}});
    check(relaxed, INGRESSES, ingress, [letter, Ok(())]).await;

    let mut costly = pod("p", json!({}));
    costly["metadata"]["annotations"] =
        json!({"controller.kubernetes.io/pod-deletion-cost": "much"});
    let number = Err("must be a 32bit integer");
    check(Feature::PodDeletionCost, PODS, costly, [Ok(()), number]).await;
    let spec = json!({"securityContext": {"seLinuxChangePolicy": "MountOption"}});
    let policies = Err(r#"supported values: "Recursive""#);
    check(Feature::SELinuxMount, PODS, pod("p", spec), [policies, Ok(())]).await;
    let spec = json!({"containers": [
        {"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": {}}]}]});
    let [off, on] =
        ["`configMapKeyRef` or `secretKeyRef`", "`secretKeyRef` or `fileKeyRef`"].map(Err);
    check(Feature::EnvFiles, PODS, pod("p", spec), [off, on]).await;
}

#[tokio::test(start_paused = true)]
async fn containers_restart_by_rules_of_their_own() {
    let rule =
        |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]);
    let container = |name: &str, policy: &str, rules: Value| json!({"name": name, "image": "i", "restartPolicy": policy, "restartPolicyRules": rules});
    let spec = json!({
        "containers": [container("c", "Never", rule("Restart"))],
        "initContainers": [
            container("a", "Never", rule("Restart")), container("s", "Always", json!([])),
        ],
    });
    // Without the feature, rules that the others need are off, too.
    let with = |is_on: bool| {
        let gates = FeatureGates::default();
        let gates = gates.with(Feature::RestartAllContainersOnContainerExits, is_on);
        serving("", gates.with(Feature::ContainerRestartRules, is_on))
    };
    let servers = [with(false).await, with(true).await];
    for (server, is_kept) in servers.iter().zip([false, true]) {
        let made = server.create(PODS, pod("p", spec.clone())).await.unwrap();
        let policies = |list: &str| -> Vec<Value> {
            let all = made["spec"][list].as_array().unwrap();
            all.iter().map(|container| container["restartPolicy"].clone()).collect()
        };
        let [never, none] = [json!("Never"), Value::Null];
        let own = if is_kept { never } else { none };
        assert_eq!(policies("containers"), std::slice::from_ref(&own));
        assert_eq!(policies("initContainers"), [own, json!("Always")]);
        let rules = made["spec"]["containers"][0].get("restartPolicyRules");
        assert_eq!(rules.is_some(), is_kept, "{made:#}");
    }
    stop(servers).await;

    let all = json!({"containers": [container("c", "Never", rule("RestartAllContainers"))]});
    let feature = Feature::RestartAllContainersOnContainerExits;
    let unknown = Err(r#"Unsupported value: "RestartAllContainers": supported values: "Restart""#);
    check(feature, PODS, pod("p", all), [unknown, Ok(())]).await;
    let sidecar = json!({"initContainers": [container("s", "Always", rule("Restart"))]});
    let forbidden =
        Err("restartPolicyRules are not allowed for init containers with restart policy Always");
    check(feature, PODS, pod("p", sidecar), [forbidden, Ok(())]).await;
}

#[tokio::test(start_paused = true)]
async fn expressions_of_devices_know_what_features_have() {
    let class = |expression: &str| json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    let shared = class("device.allowMultipleAllocations");
    let unknown = Err("compilation failed: ");
    let shares = Feature::DRAConsumableCapacity;
    check(shares, CLASSES, shared, [unknown, Ok(())]).await;
    let lists = Feature::DRAListTypeAttributes;
    for expression in [
        "device.attributes['a.b'].modes.includes('x')",
        "device.attributes['a.b'].modes.exists(mode, mode == 'x')",
    ] {
        check(lists, CLASSES, class(expression), [unknown, Ok(())]).await;
    }
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {
        "requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}], "constraints": [{}]}}});
    let [one, either] =
        ["constraints[0].matchAttribute: Required value", "exactly one of \"matchAttribute\" or"]
            .map(Err);
    check(shares, DEVICE_CLAIMS, claim, [one, either]).await;

    let slice = |mapping: Value| {
        json!({"metadata": {"name": "s"}, "spec": {
            "driver": "a.b", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "d", "nodeAllocatableResourceMappings": {"cpu": mapping}}]}})
    };
    let takes = Feature::DRANodeAllocatableResources;
    let [off, on] = check(takes, SLICES, slice(json!({})), [Ok(()); 2]).await;
    let taken = |made: Option<Value>| {
        made.unwrap()["spec"]["devices"][0].get("nodeAllocatableResourceMappings").cloned()
    };
    assert_eq!(
        (taken(off), taken(on)),
        (None, Some(json!({"cpu": {"allocationMultiplier": "1"}})))
    );
    let missing = slice(json!({"capacityKey": "memory"}));
    check(takes, SLICES, missing, [Ok(()), Err("capacityKey: Not found: \"memory\"")]).await;
}

#[tokio::test(start_paused = true)]
async fn members_of_volumes_are_kept_dropped_or_set() {
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "a", "namespace": "other"}}});
    let made = check(Feature::CrossNamespaceVolumeDataSource, CLAIMS, claim, [Ok(()); 2]).await;
    let has_source = made.map(|made| made.unwrap()["spec"].get("dataSourceRef").is_some());
    assert_eq!(has_source, [false, true]);

    let driver = json!({"metadata": {"name": "d"}, "spec": {}});
    let made = check(Feature::VolumeLimitScaling, DRIVERS, driver, [Ok(()); 2]).await;
    let prevents =
        made.map(|made| made.unwrap()["spec"].get("preventPodSchedulingIfMissing").cloned());
    assert_eq!(prevents, [None, Some(false.into())]);
}

#[tokio::test(start_paused = true)]
async fn nodes_declare_features_and_bindings_place_pods() {
    let node = json!({"metadata": {"name": "n"}, "status": {"declaredFeatures": ["A"]}});
    let gates = FeatureGates::default();
    // What needs it is off, too.
    let off = gates
        .with(Feature::NodeDeclaredFeatures, false)
        .with(Feature::InPlacePodLevelResourcesVerticalScaling, false)
        .with(Feature::InPlacePodVerticalScalingInitContainers, false)
        .with(Feature::RestartAllContainersOnContainerExits, false);
    let servers = [serving("", off).await, serving("", gates).await];
    for (server, declares) in servers.iter().zip([false, true]) {
        let made = server.create("/api/v1/nodes", node.clone()).await.unwrap();
        assert_eq!(made["status"].get("declaredFeatures").is_some(), declares);
    }
    stop(servers).await;

    let place = async |server: &Server| {
        server.create(PODS, pod("p", json!({}))).await.unwrap();
        let status = json!({"status": {"nominatedNodeName": "n"}});
        server.patch(&format!("{PODS}/p/status"), status).await.unwrap();
        let binding = json!({"metadata": {"name": "p", "labels": {"a": "b"}},
            "target": {"kind": "Node", "name": "n"}});
        server.create(&format!("{PODS}/p/binding"), binding).await.unwrap();
        server.get(&format!("{PODS}/p")).await.unwrap()
    };
    let servers = both(Feature::ClearingNominatedNodeNameAfterBinding).await;
    for (server, is_cleared) in servers.iter().zip([false, true]) {
        let placed = place(server).await;
        assert_eq!(placed["status"].get("nominatedNodeName").is_none(), is_cleared);
        let status = json!({"status": {"nominatedNodeName": "m"}});
        let nominated = server.patch(&format!("{PODS}/p/status"), status).await;
        assert_eq!(nominated.is_err(), is_cleared, "{nominated:?}");
    }
    stop(servers).await;
    // The plugin of this feature puts labels into bindings.
    let servers = both(Feature::PodTopologyLabelsAdmission).await;
    for (server, are_copied) in servers.iter().zip([false, true]) {
        assert_eq!(place(server).await["metadata"]["labels"].get("a").is_some(), are_copied);
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn groups_have_priorities_topologies_and_claims() {
    let gates = [
        Feature::DRAWorkloadResourceClaims,
        Feature::GangScheduling,
        Feature::GenericWorkload,
        Feature::TopologyAwareWorkloadScheduling,
        Feature::WorkloadAwarePreemption,
    ];
    let server = serving("api/all", gates.into()).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    server.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await.unwrap();
    let full = json!({
        "schedulingPolicy": {"basic": {}}, "disruptionMode": "PodGroup", "priorityClassName": "high",
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
        "resourceClaims": [{"name": "a", "resourceClaimName": "b"}],
    });
    let group = |spec: &Value| json!({"metadata": {"name": "g"}, "spec": spec});
    let workload = |spec: &Value| {
        let mut template = spec.clone();
        template["name"] = "t".into();
        json!({"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})
    };
    for (member, value, why) in [
        ("schedulingConstraints", json!({"topology": [{}, {}]}), "topology: Too many: 2"),
        ("schedulingConstraints", json!({"topology": [{}]}), "topology[0].key: Required value"),
        ("disruptionMode", json!("All"), r#"supported values: "Pod", "PodGroup""#),
        ("priorityClassName", json!("A"), "priorityClassName"),
        (
            "resourceClaims",
            json!([{"name": "a"}]),
            "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        ),
    ] {
        let mut spec = full.clone();
        spec[member] = value;
        let why_of_group = match member {
            "priorityClassName" => "no PriorityClass with name A was found",
            _ => why,
        };
        for (path, object, why) in
            [(GROUPS, group(&spec), why_of_group), (WORKLOADS, workload(&spec), why)]
        {
            let error = refused(server.create(path, object).await);
            assert!(error.contains(why), "{path} {why}: {error}");
        }
    }
    let other = server
        .create(GROUPS, group(&json!({"schedulingPolicy": {"basic": {}}, "priority": 7})))
        .await;
    let why = "priority set in the pod group (7) must match the priority computed (0)";
    assert!(refused(other).contains(why));

    let made = server.create(WORKLOADS, workload(&full)).await.unwrap();
    assert_eq!(made["spec"]["podGroupTemplates"][0]["disruptionMode"], "PodGroup");
    let made = server.create(GROUPS, group(&full)).await.unwrap();
    let mut expected = full.clone();
    expected["priority"] = 1000.into();
    // The API shows it in any case.
    expected["podGroupTemplateRef"] = Value::Null;
    assert_eq!(made["spec"], expected);
    let changed =
        json!({"spec": {"disruptionMode": "Pod", "priorityClassName": "", "priority": null}});
    let error = refused(server.patch(&format!("{GROUPS}/g"), changed).await);
    for member in ["disruptionMode", "priorityClassName", "priority"] {
        assert!(error.contains(&format!("spec.{member}: Invalid value")), "{error}");
    }
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn mutating_policies_have_no_effect_while_they_are_off() {
    let servers = both(Feature::MutatingAdmissionPolicy).await;
    for (server, has_effect) in servers.iter().zip([false, true]) {
        let labels = "Object{metadata: Object.metadata{labels: {'added': ''}}}";
        let mutation = json!({"patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": labels}});
        enforce(server, "m", "Fail", mutation).await;
        let made = json!({"metadata": {"name": "c", "labels": {"m": ""}}});
        let made = server.create("/api/v1/namespaces/default/configmaps", made).await.unwrap();
        assert_eq!(made["metadata"]["labels"].get("added").is_some(), has_effect, "{made:#}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_resize_may_change() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}, "limits": {"cpu": amount}});
    let spec = json!({
        "containers": [{"name": "c", "image": "i", "resources": cpu("1")}],
        "initContainers": [{"name": "a", "image": "i", "resources": cpu("1")}],
    });
    let resize = format!("{PODS}/p/resize");
    // Of an init container that is no sidecar.
    let servers = both(Feature::InPlacePodVerticalScalingInitContainers).await;
    for (server, may_change) in servers.iter().zip([false, true]) {
        server.create(PODS, pod("p", spec.clone())).await.unwrap();
        let change = json!({"spec": {"initContainers": [{"name": "a", "image": "i",
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "Always", "resources": cpu("2")}]}});
        let answer = server.patch(&resize, change).await;
        match may_change {
            true => drop(answer.unwrap()),
            false => {
                let why =
                    "spec: Forbidden: resources for non-sidecar init containers are immutable";
                assert!(refused(answer).ends_with(why));
            }
        }
    }
    stop(servers).await;
    // Of the whole pod: one that has resources, and one that gets some.
    let servers = both(Feature::InPlacePodLevelResourcesVerticalScaling).await;
    for (server, may_change) in servers.iter().zip([false, true]) {
        let mut whole = spec.clone();
        whole["resources"] = cpu("3");
        server.create(PODS, pod("p", whole)).await.unwrap();
        let change = json!({"spec": {"resources": cpu("4")}});
        let answer = server.patch(&resize, change.clone()).await;
        match may_change {
            true => assert_eq!(answer.unwrap()["spec"]["resources"], cpu("4")),
            false => {
                let why = "resize of pods with pod-level resources is forbidden when";
                assert!(refused(answer).contains(why));
            }
        }
        server.create(PODS, pod("q", spec.clone())).await.unwrap();
        let made = server.patch(&format!("{PODS}/q/resize"), change).await.unwrap();
        assert_eq!(made["spec"].get("resources").is_some(), may_change, "{made:#}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_with_leading_zeros_is_the_address() {
    let gates = FeatureGates::default().with(Feature::StrictIPCIDRValidation, false);
    let server = serving("", gates).await;
    let service = |name: &str, address: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    let made = server.create(SERVICES, service("a", "10.0.0.011")).await.unwrap();
    assert_eq!(made["spec"]["clusterIPs"], json!(["10.0.0.011"]));
    let error = refused(server.create(SERVICES, service("b", "10.0.0.11")).await);
    assert!(error.contains("provided IP is already allocated"), "{error}");
    server.delete(&format!("{SERVICES}/a")).await.unwrap();
    server.create(SERVICES, service("b", "10.0.0.11")).await.unwrap();
    server.stop().await;
}
