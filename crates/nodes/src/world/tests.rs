//! Addresses, room and resizes of nodes and pods.

use super::*;
use serde_json::json;

const SINGLE: Families = Families { primary: Family::V4, is_dual: false };

fn seen(node: &str, port: u16, status: Value) -> Option<SeenPod> {
    let container = json!({"ports": [{"hostPort": port, "protocol": "TCP"}]});
    let pod = json!({"metadata": {"uid": "u"}, "status": status,
        "spec": {"nodeName": node, "containers": [container]}});
    serde_json::from_value(pod).ok()
}

#[test]
fn addresses_are_unique_and_are_found_again() {
    let world = World::new(SINGLE);
    let node = json!({"metadata": {"labels": {NODE_LABEL: "true"}}});
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    assert!(world.put_node(&a, Some(&node)));
    let mut known = node.clone();
    known["status"] = json!({"addresses": [{"type": "InternalIP", "address": "172.16.0.9"}]});
    assert!(world.put_node(&b, Some(&known)));
    assert_eq!(world.host_ips("a"), ["172.16.0.2"]);
    assert_eq!(world.host_ips("b"), ["172.16.0.9"]);
    assert_eq!(world.host_ips("c"), [""; 0]);
    let key = |n: usize| Request::new("default", format!("p{n}"));
    let mut ips = BTreeSet::new();
    for n in 0..1022 {
        assert!(world.put_pod(&key(n), seen("a", 0, json!({}))));
        let ip = world.pod_ips(&key(n), "u");
        assert_eq!(world.pod_ips(&key(n), "u"), ip);
        assert!(ip.len() == 1 && ips.insert(ip));
    }
    assert!(world.put_pod(&key(5000), seen("a", 0, json!({}))));
    assert_eq!(world.pod_ips(&key(5000), "u"), [""; 0], "the block is full");
    world.put_pod(&key(7), None);
    assert!(ips.contains(&world.pod_ips(&key(5000), "u")));
    assert!(!world.put_pod(&key(1), seen("other", 0, json!({}))));
}

#[test]
fn addresses_of_both_families_have_one_number() {
    let node = json!({"metadata": {"labels": {NODE_LABEL: "true"}}});
    let key = Request::new("default", "p");
    for (primary, is_dual, of_node, of_pod) in [
        (Family::V4, true, ["172.16.0.2", "fd00:172:16::2"], ["10.64.0.2", "fd00:10:64::2"]),
        (Family::V6, true, ["fd00:172:16::2", "172.16.0.2"], ["fd00:10:64::2", "10.64.0.2"]),
        (Family::V6, false, ["fd00:172:16::2", ""], ["fd00:10:64::2", ""]),
    ] {
        let n = 1 + usize::from(is_dual);
        let families = Families { primary, is_dual };
        let world = World::new(families);
        world.put_node(&"a".into(), Some(&node));
        world.put_pod(&key, seen("a", 0, json!({})));
        assert_eq!(world.host_ips("a"), of_node[..n]);
        assert_eq!(world.pod_ips(&key, "u"), of_pod[..n]);
        // A restart finds both again, by the first.
        let world = World::new(families);
        let mut known = node.clone();
        let later = |ip: &str| format!("{}9", &ip[..ip.len().saturating_sub(1)]);
        let address = later(of_node[0]);
        known["status"]["addresses"] = json!([{"type": "InternalIP", "address": address}]);
        world.put_node(&"a".into(), Some(&known));
        world.put_pod(&key, seen("a", 0, json!({"podIP": later(of_pod[0])})));
        assert_eq!(world.host_ips("a"), of_node.map(later)[..n]);
        assert_eq!(world.pod_ips(&key, "u"), of_pod.map(later)[..n]);
    }
}

#[test]
fn the_position_of_a_node_that_left_is_used_again() {
    let world = World::new(SINGLE);
    let node = json!({"metadata": {"labels": {NODE_LABEL: "true"}}});
    let name = |n: u32| -> Arc<str> { format!("n{n}").into() };
    for n in 0..NODES_MAX {
        assert!(world.put_node(&name(n), Some(&node)));
    }
    assert!(!world.put_node(&name(NODES_MAX), Some(&node)), "no address is left");
    let addresses = world.host_ips("n7000");
    world.put_node(&name(7000), None);
    world.put_node(&name(9000), None);
    assert!(world.put_node(&name(NODES_MAX), Some(&node)));
    assert_eq!(world.host_ips(&name(NODES_MAX)), addresses);
    assert!(world.put_node(&name(9000), Some(&node)));
    assert!(!world.put_node(&name(7000), Some(&node)));
}

#[test]
fn resizes_that_wait_get_room_by_rank_when_there_is_some() {
    let world = World::new(SINGLE);
    let node = |cpu: &str| {
        json!({"metadata": {"labels": {NODE_LABEL: "true"}},
            "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}})
    };
    let a: Arc<str> = "a".into();
    world.put_node(&a, Some(&node("4")));
    let pod = |name: &str, wanted: &str, has: &str, priority: i64| {
        json!({"metadata": {"uid": name, "generation": 2},
            "spec": {"nodeName": "a", "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": wanted}}}]},
            "status": {"containerStatuses": [
                {"name": "c", "resources": {"requests": {"cpu": has}}}]}})
    };
    let put = |name: &str, pod: &Value| {
        world.put_pod(&Request::new("d", name), serde_json::from_value(pod.clone()).ok())
    };
    let ask = |name: &str, pod: &Value| {
        world.resize(&Request::new("d", name), name, resize::wanted(pod).unwrap())
    };
    let low = pod("low", "2", "1", 0);
    let high = pod("high", "2", "1", 5);
    let big = pod("big", "2", "2", 0);
    for (name, pod) in [("low", &low), ("high", &high), ("big", &big)] {
        assert!(put(name, pod));
    }
    let Resize::Deferred(message) = ask("low", &low) else { panic!("there is no room") };
    assert_eq!(
        message,
        "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    );
    assert!(matches!(ask("high", &high), Resize::Deferred(_)));
    // One core more: for the one with the higher priority, whoever asks first.
    world.put_node(&a, Some(&node("5")));
    assert!(matches!(ask("low", &low), Resize::Deferred(_)));
    assert_eq!(ask("high", &high), Resize::Granted);
    // Whatever there is, a pod may have less.
    let mut small = pod("big", "1", "2", 0);
    small["metadata"]["generation"] = 3.into();
    world.put_node(&a, Some(&node("1")));
    put("big", &small);
    assert_eq!(ask("big", &small), Resize::Granted);
    put("big", &big);
    world.put_node(&a, Some(&node("5")));
    // An event from before the grant changes nothing; a pod that leaves makes room.
    put("high", &high);
    assert!(matches!(ask("low", &low), Resize::Deferred(_)));
    world.put_pod(&Request::new("d", "big"), None);
    assert_eq!(ask("low", &low), Resize::Granted);
}

#[test]
fn a_node_takes_a_pod_in_if_it_has_a_port_and_room() {
    let world = World::new(SINGLE);
    let node = json!({"metadata": {"labels": {NODE_LABEL: "true"}},
        "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "2"}}});
    world.put_node(&"a".into(), Some(&node));
    let key = |name: &str| Request::new("d", name);
    let put = |name: &str, port: u16, status: Value| {
        world.put_pod(&key(name), seen("a", port, status));
    };
    let reason = |name: &str| world.admit(&key(name), "u").err().map(|error| error.reason);
    put("first", 80, json!({}));
    put("second", 80, json!({}));
    assert_eq!(reason("second"), None);
    assert_eq!(reason("first"), Some("NodePorts"));
    put("second", 80, json!({"startTime": "2026-01-01T00:00:00Z"}));
    assert_eq!(reason("first"), Some("NodePorts"));
    put("second", 80, json!({"phase": "Succeeded"}));
    assert_eq!((reason("first"), reason("first")), (None, None));
    put("second", 81, json!({}));
    assert_eq!(reason("second"), None);
    put("third", 82, json!({}));
    assert_eq!(reason("third"), Some("OutOfpods"));
    world.put_pod(&key("second"), None);
    let large = json!({"metadata": {"uid": "u"}, "spec": {"nodeName": "a", "containers": [
        {"resources": {"requests": {"cpu": "5"}}}]}});
    world.put_pod(&key("third"), serde_json::from_value(large).ok());
    let rejection = world.admit(&key("third"), "u").unwrap_err();
    assert_eq!(rejection.reason, "OutOfcpu");
    assert_eq!(
        rejection.message,
        "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"
    );
}
