//! What the back end does with a project, told against any cloud.

use super::cloud::{Cloud, desired, owner};
use http::Method;
use network::backend::neutron::DESCRIPTION;
use network::backend::{Again, Backend, BackendError};
use serde_json::{Value, json};

/// Tells all stories. `project`: makes a project, whose name starts with a text. `crashes`: after
/// which of the six writes a process dies.
pub(crate) async fn tell_all(project: impl Fn(&str) -> Cloud, crashes: &[usize]) {
    settled_network_costs_no_writes(&project("settled")).await;
    edits_are_followed(&project("edits")).await;
    whatever_a_crash_leaves_is_completed(&project, crashes).await;
    whatever_a_crash_leaves_is_deleted(&project, crashes).await;
    network_of_a_late_request_is_deleted(&project("late")).await;
    others_networks_are_left_alone(&project("others")).await;
    drift_is_repaired(&project("drift")).await;
    quota_stops_it_until_it_is_raised(&project("quota")).await;
    network_in_use_stays(&project("in-use")).await;
    range_of_another_owner_is_refused(&project("overlap")).await;
    refused_spec_is_terminal(&project("refused")).await;
}

async fn settled_network_costs_no_writes(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let wanted = desired("192.168.0.0/16", "192.168.0.1");
    let first = backend.ensure(&owner, wanted).await.unwrap();
    cloud.has_only(&owner, wanted).await;
    let network = cloud.only("networks").await;
    assert_eq!((json!(first.device), first.changed), (network["id"].clone(), true));
    let subnet = cloud.only("subnets").await;
    let pool = json!([{ "start": "192.168.0.2", "end": "192.168.255.254" }]);
    assert_eq!(subnet["allocation_pools"], pool);
    let writes = cloud.wire.take_writes();
    assert_eq!(writes.len(), 6, "three are created and three are tagged: {writes:#?}");

    let again = backend.ensure(&owner, wanted).await.unwrap();
    assert_eq!((again.device, again.changed), (first.device.clone(), false));
    let log = cloud.wire.take_log();
    assert_eq!(log.len(), 4, "{log:#?}");
    assert!(log.iter().all(|line| line.starts_with("GET ")), "{log:#?}");
    let existing = backend.get(&owner).await.unwrap().unwrap();
    assert_eq!((existing.desired, existing.device), (wanted, first.device));

    assert!(backend.release(&owner).await.unwrap());
    cloud.is_empty().await;
    assert!(!backend.release(&owner).await.unwrap(), "released before");
    assert_eq!(backend.get(&owner).await.unwrap(), None);
}

async fn edits_are_followed(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let mut device = None;
    for (cidr, gateway) in [
        ("10.1.0.0/24", "10.1.0.1"),
        ("10.1.0.0/24", "10.1.0.77"),
        ("10.1.0.0/16", "10.1.0.77"),
        ("10.1.0.0/30", "10.1.0.2"),
        ("172.16.0.0/30", "172.16.0.1"),
    ] {
        let wanted = desired(cidr, gateway);
        let made = backend.ensure(&owner, wanted).await.unwrap();
        assert!(made.changed, "{cidr} {gateway}");
        cloud.has_only(&owner, wanted).await;
        assert_eq!(*device.get_or_insert(made.device.clone()), made.device, "the same network");
        assert!(!backend.ensure(&owner, wanted).await.unwrap().changed);
    }
}

/// The process dies after each of the requests that write, before it has the answer.
async fn whatever_a_crash_leaves_is_completed(project: &impl Fn(&str) -> Cloud, crashes: &[usize]) {
    let (owner, wanted) = (owner("a"), desired("10.2.0.0/24", "10.2.0.1"));
    for &writes in crashes {
        let cloud = project("crash-create");
        cloud.wire.break_after(Some(writes));
        let error = cloud.backend().ensure(&owner, wanted).await.unwrap_err();
        assert_eq!((error.reason(), error.again()), ("BackendFailed", Again::WithBackoff));
        cloud.wire.break_after(None);
        let made = cloud.backend().ensure(&owner, wanted).await.unwrap();
        assert_eq!(made.changed, writes < 6, "after {writes} writes");
        cloud.has_only(&owner, wanted).await;
    }
}

async fn whatever_a_crash_leaves_is_deleted(project: &impl Fn(&str) -> Cloud, crashes: &[usize]) {
    let (owner, wanted) = (owner("a"), desired("10.3.0.0/24", "10.3.0.1"));
    for &writes in crashes {
        let cloud = project("crash-delete");
        cloud.wire.break_after(Some(writes));
        cloud.backend().ensure(&owner, wanted).await.unwrap_err();
        // The deletion is interrupted, too.
        cloud.wire.break_after(Some(1));
        cloud.backend().release(&owner).await.unwrap_err();
        cloud.wire.break_after(None);
        cloud.backend().release(&owner).await.unwrap();
        cloud.is_empty().await;
    }
}

async fn network_of_a_late_request_is_deleted(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let wanted = desired("10.4.0.0/24", "10.4.0.1");
    let kept = backend.ensure(&owner, wanted).await.unwrap().device;
    let late = json!({ "name": "setpoint-a", "description": DESCRIPTION });
    cloud.make("network", late.clone()).await;
    cloud.make("network", late).await;
    let made = backend.ensure(&owner, wanted).await.unwrap();
    assert_eq!((made.device, made.changed), (kept, true));
    cloud.has_only(&owner, wanted).await;
}

async fn others_networks_are_left_alone(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let mut foreign = vec![
        cloud.make("network", json!({ "name": "setpoint-a" })).await,
        cloud.make("network", json!({ "name": "setpoint-a", "description": "mine" })).await,
        cloud.make("network", json!({ "name": "x", "description": DESCRIPTION })).await,
    ];
    foreign.sort();
    assert_eq!(backend.get(&owner).await.unwrap(), None);
    let made = backend.ensure(&owner, desired("10.5.0.0/24", "10.5.0.1")).await.unwrap();
    assert!(!foreign.contains(&made.device));
    assert!(backend.release(&owner).await.unwrap());
    let left: Vec<Value> = cloud.all("networks").await;
    let mut left: Vec<&str> = left.iter().map(|network| network["id"].as_str().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, foreign);
}

async fn drift_is_repaired(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let wanted = desired("10.6.0.0/24", "10.6.0.1");
    let network = backend.ensure(&owner, wanted).await.unwrap().device;
    let id = |item: Value| item["id"].as_str().unwrap().to_owned();

    let subnet = id(cloud.only("subnets").await);
    let moved = json!({
        "gateway_ip": "10.6.0.9",
        "allocation_pools": [{ "start": "10.6.0.10", "end": "10.6.0.20" }],
    });
    cloud.change("subnet", &subnet, moved).await;
    let existing = backend.get(&owner).await.unwrap().unwrap();
    assert_eq!(existing.desired.gateway.to_string(), "10.6.0.9");
    assert!(backend.ensure(&owner, wanted).await.unwrap().changed);
    cloud.has_only(&owner, wanted).await;

    cloud.remove("port", &id(cloud.only("ports").await)).await;
    assert!(backend.ensure(&owner, wanted).await.unwrap().changed);
    cloud.has_only(&owner, wanted).await;

    cloud.remove("port", &id(cloud.only("ports").await)).await;
    cloud.remove("subnet", &subnet).await;
    assert_eq!(backend.get(&owner).await.unwrap(), None);
    assert!(backend.ensure(&owner, wanted).await.unwrap().changed);
    cloud.has_only(&owner, wanted).await;

    let port = id(cloud.only("ports").await);
    let subnet = id(cloud.only("subnets").await);
    let address = json!([{ "subnet_id": subnet, "ip_address": "10.6.0.50" }]);
    cloud.change("port", &port, json!({ "fixed_ips": address })).await;
    assert!(backend.ensure(&owner, wanted).await.unwrap().changed);
    cloud.has_only(&owner, wanted).await;

    // The tag is lost, and then the name: the other mark is enough, and the tag comes back.
    let (status, _) = cloud.ask(Method::DELETE, &format!("/networks/{network}/tags"), None).await;
    assert!(status.is_success(), "{status}");
    assert!(backend.ensure(&owner, wanted).await.unwrap().changed);
    cloud.has_only(&owner, wanted).await;
    cloud.change("network", &network, json!({ "name": "renamed" })).await;
    assert_eq!(backend.ensure(&owner, wanted).await.unwrap().device, network);
    assert!(backend.release(&owner).await.unwrap());
    cloud.is_empty().await;
}

async fn quota_stops_it_until_it_is_raised(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let wanted = desired("10.7.0.0/24", "10.7.0.1");
    for (quota, what) in [
        (json!({ "network": 0 }), "network"),
        (json!({ "network": 9, "subnet": 0 }), "subnet"),
        (json!({ "network": 9, "subnet": 9, "port": 0 }), "port"),
    ] {
        cloud.quota(quota).await;
        for _ in 0..2 {
            let error = backend.ensure(&owner, wanted).await.unwrap_err();
            assert_eq!((error.reason(), error.again()), ("QuotaExceeded", Again::Slowly));
            assert_eq!(
                error.to_string(),
                format!(
                    "a quota leaves no room for setpoint-a: Quota exceeded for resources: ['{what}']."
                )
            );
        }
    }
    cloud.quota(json!({ "network": 9, "subnet": 9, "port": 9 })).await;
    backend.ensure(&owner, wanted).await.unwrap();
    cloud.has_only(&owner, wanted).await;
}

async fn network_in_use_stays(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    let wanted = desired("10.8.0.0/24", "10.8.0.1");
    let network = backend.ensure(&owner, wanted).await.unwrap().device;
    let subnet = cloud.only("subnets").await["id"].clone();
    let address = json!([{ "subnet_id": subnet, "ip_address": "10.8.0.40" }]);
    let server = json!({ "network_id": network, "fixed_ips": address });
    let server = cloud.make("port", server).await;
    let refused = [
        backend.release(&owner).await.unwrap_err(),
        backend.ensure(&owner, desired("10.8.0.0/16", "10.8.0.1")).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!((error.reason(), error.again()), ("InUse", Again::Slowly));
        assert!(error.to_string().contains(&server), "{error}");
    }
    assert_eq!(cloud.all("ports").await.len(), 2, "the gateway's port is still there");
    assert!(!backend.ensure(&owner, wanted).await.unwrap().changed, "nothing was touched");
    // The gateway may move meanwhile, but not to the address of a port.
    backend.ensure(&owner, desired("10.8.0.0/24", "10.8.0.2")).await.unwrap();
    let error = backend.ensure(&owner, desired("10.8.0.0/24", "10.8.0.40")).await.unwrap_err();
    assert_eq!(error.reason(), "InUse", "{error}");
    cloud.remove("port", &server).await;
    assert!(backend.release(&owner).await.unwrap());
    cloud.is_empty().await;
}

async fn range_of_another_owner_is_refused(cloud: &Cloud) {
    let (backend, a, b) = (cloud.backend(), owner("a"), owner("b"));
    let wanted = desired("10.9.1.0/24", "10.9.1.1");
    // The subnet of the first owner is not tagged yet.
    cloud.wire.break_after(Some(3));
    cloud.backend().ensure(&a, desired("10.9.0.0/16", "10.9.0.1")).await.unwrap_err();
    cloud.wire.break_after(None);
    let error = backend.ensure(&b, wanted).await.unwrap_err();
    assert_eq!(error.to_string(), "10.9.1.0/24 overlaps 10.9.0.0/16, which setpoint-a holds");
    assert!(matches!(error, BackendError::Overlap { .. }));
    assert_eq!(cloud.all("networks").await.len(), 1);
    backend.release(&a).await.unwrap();
    backend.ensure(&b, wanted).await.unwrap();
    cloud.has_only(&b, wanted).await;

    // The request for the first one's subnet takes effect only now.
    let marks = json!({ "name": "setpoint-a", "description": DESCRIPTION });
    let network = cloud.make("network", marks.clone()).await;
    let mut late = marks;
    late["network_id"] = json!(network);
    late["ip_version"] = json!(4);
    late["cidr"] = json!("10.9.0.0/16");
    late["gateway_ip"] = json!("10.9.0.1");
    cloud.make("subnet", late).await;
    let error = backend.ensure(&a, desired("10.9.0.0/16", "10.9.0.1")).await.unwrap_err();
    assert_eq!(error.reason(), "RangeTaken");
    assert_eq!(cloud.all("subnets").await.len(), 1, "of two, the late one is gone");
    assert!(!backend.ensure(&b, wanted).await.unwrap().changed);
    backend.release(&a).await.unwrap();
    cloud.has_only(&b, wanted).await;
}

async fn refused_spec_is_terminal(cloud: &Cloud) {
    let (backend, owner) = (cloud.backend(), owner("a"));
    // Somebody else's subnet is in the way.
    cloud.quota(json!({ "subnet": 0 })).await;
    let wanted = desired("10.10.0.0/24", "10.10.0.1");
    backend.ensure(&owner, wanted).await.unwrap_err();
    cloud.quota(json!({ "subnet": 9 })).await;
    let network = cloud.only("networks").await["id"].clone();
    let other = json!({ "network_id": network, "ip_version": 4, "cidr": "10.10.0.0/16" });
    cloud.make("subnet", other).await;
    let error = backend.ensure(&owner, wanted).await.unwrap_err();
    assert_eq!((error.reason(), error.again()), ("Rejected", Again::AfterChange));
    assert!(error.to_string().contains("overlaps with another subnet"), "{error}");
    assert!(backend.release(&owner).await.unwrap());
    cloud.is_empty().await;
}
