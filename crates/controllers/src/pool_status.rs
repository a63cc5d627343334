//! ResourcePoolStatusRequests: a question about the devices of a driver's pools, which is answered
//! once, in the status.
//!
//! # Theory
//!
//! | the request | a pass |
//! |---|---|
//! | has no status | reads slices and claims, counts the devices of each pool, and writes the status |
//! | has none, and one of the pools that it would show is incomplete | looks again later, in growing steps: its driver is about to write more slices |
//! | has no status a day after its creation | deletes it |
//! | has one | deletes it an hour after that |
//!
//! One request is answered at a time, because an answer reads all claims. The rules and texts are
//! those of kube-controller-manager's `resourcepoolstatusrequest-controller`. It gives up after a
//! sixth of a second if a pool is incomplete, and deletes requests at one of its looks every ten
//! minutes, not when their time comes.

use crate::api::{Api, RequestError, ignore_not_found, of_uid};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_object::url::escape_segment;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use std::collections::BTreeMap;
use std::time::Duration;

/// The controller's name.
const NAME: &str = "resourcepoolstatusrequest-controller";
const GROUP: &str = "resource.k8s.io";
const VERSION: &str = "v1alpha3";
const REQUESTS: &str = "resourcepoolstatusrequests";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
/// Slices in a page: few, because one may have 128 devices with many attributes.
const PAGE_SLICES: usize = 25;
/// How long an answered request stays: an hour, as in kube-controller-manager.
pub const ANSWERED_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// How long a request without an answer stays: a day, as in kube-controller-manager.
pub const PENDING_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How many pools are shown if the request does not say it: 100, a default of the API.
const POOLS_BY_DEFAULT: usize = 100;

/// The controller that answers ResourcePoolStatusRequests. It does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct PoolStatusController {
    setup: Setup,
}

impl PoolStatusController {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "ResourcePoolStatusRequest".to_owned(),
            plural: REQUESTS.to_owned(),
        };
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        let controller = Controller::builder(NAME)
            .for_(Watch::<DynamicObject>::metadata_dynamic(resource).cluster_scoped())
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl BoxedReconciler for Pass {
    type Error = RequestError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, RequestError> {
        let path = format!("/apis/{GROUP}/{VERSION}/{REQUESTS}/{}", request.name);
        let Some(mut found) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let now = self.clock.now();
        let left = ends_at(&found).since(now);
        if left.is_zero() {
            ignore_not_found(self.api.delete(&path, &of_uid(found.uid())).await)?;
            return Ok(Action::await_change());
        }
        if found["status"].is_object() {
            return Ok(Action::requeue_after(left));
        }
        let pools = self.pools(&found["spec"]).await?;
        let Some(status) = status(&found["spec"], pools, now) else {
            return Ok(Action::requeue());
        };
        found["status"] = status;
        // The change that it brings is another pass.
        ignore_not_found(self.api.put(&format!("{path}/status"), &found).await)?;
        Ok(Action::await_change())
    }
}

/// When a request is deleted.
fn ends_at(request: &Value) -> Timestamp {
    let time = |time: &Value| time.as_str().and_then(Timestamp::parse);
    let created = time(&request["metadata"]["creationTimestamp"]).unwrap_or_default();
    if !request["status"].is_object() {
        return created + PENDING_AGE_MAX;
    }
    let mut conditions = request["status"]["conditions"].as_array().into_iter().flatten();
    let answered = conditions
        .find(|condition| condition["type"] == "Complete" || condition["type"] == "Failed")
        .and_then(|condition| time(&condition["lastTransitionTime"]));
    answered.unwrap_or(created) + ANSWERED_AGE_MAX
}

impl Pass {
    /// The pools that a request asks for, by name.
    async fn pools(&self, spec: &Value) -> Result<BTreeMap<String, Pool>, RequestError> {
        let driver = spec["driver"].as_str().unwrap_or_default();
        let mut pools = BTreeMap::new();
        let of_driver = format!("{SLICES}?fieldSelector=spec.driver%3D{}", escape_segment(driver));
        let add_slice = |slice: Value| add_slice(&mut pools, spec, &slice);
        self.api.list_pages_of(&of_driver, PAGE_SLICES, add_slice).await?;
        if !pools.is_empty() {
            self.api.list_pages(CLAIMS, |claim| add_claim(&mut pools, driver, &claim)).await?;
        }
        Ok(pools)
    }
}

/// A pool, as its slices of the newest generation and the claims say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pool {
    generation: i64,
    n_slices: i64,
    /// How many slices there should be.
    n_expected: i64,
    /// The node of all slices; `None`: none, or not the same of all.
    node: Option<String>,
    n_devices: usize,
    n_allocated: usize,
}

/// Counts a slice, if a request asks for its pool.
fn add_slice(pools: &mut BTreeMap<String, Pool>, spec: &Value, slice: &Value) {
    let of = &slice["spec"];
    let name = of["pool"]["name"].as_str().unwrap_or_default();
    let wanted = spec["poolName"].as_str();
    if of["driver"] != spec["driver"] || wanted.is_some_and(|wanted| wanted != name) {
        return;
    }
    let generation = of["pool"]["generation"].as_i64().unwrap_or_default();
    let known = pools.get(name).map(|known| known.generation);
    if known.is_some_and(|known| known > generation) {
        return;
    }
    let node = of["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_owned);
    let n_devices = of["devices"].as_array().map_or(0, Vec::len);
    match pools.get_mut(name).filter(|known| known.generation == generation) {
        Some(pool) => {
            pool.n_slices += 1;
            pool.n_devices += n_devices;
            if pool.node != node {
                pool.node = None;
            }
        }
        None => {
            let n_expected = of["pool"]["resourceSliceCount"].as_i64().unwrap_or_default();
            let pool =
                Pool { generation, n_slices: 1, n_expected, node, n_devices, n_allocated: 0 };
            pools.insert(name.to_owned(), pool);
        }
    }
}

/// Counts the devices that a claim has.
fn add_claim(pools: &mut BTreeMap<String, Pool>, driver: &str, claim: &Value) {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    for result in results.into_iter().flatten().filter(|result| result["driver"] == driver) {
        let pool = result["pool"].as_str().and_then(|pool| pools.get_mut(pool));
        if let Some(pool) = pool {
            pool.n_allocated += 1;
        }
    }
}

impl Pool {
    fn is_complete(&self) -> bool {
        self.n_slices >= self.n_expected
    }
}

/// The status of a request; `None` if one of the pools that it shows is incomplete.
fn status(spec: &Value, pools: BTreeMap<String, Pool>, now: Timestamp) -> Option<Value> {
    let limit = spec["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
    let n_pools = pools.len();
    let shown: Vec<_> = pools.into_iter().take(limit.unwrap_or(POOLS_BY_DEFAULT)).collect();
    if !shown.iter().all(|(_, pool)| pool.is_complete()) {
        return None;
    }
    let n_shown = shown.len();
    let pools = shown.into_iter().map(|(name, pool)| {
        let mut status = json!({
            "driver": spec["driver"], "poolName": name, "generation": pool.generation,
            "resourceSliceCount": pool.n_slices, "totalDevices": pool.n_devices,
            "allocatedDevices": pool.n_allocated,
            "availableDevices": pool.n_devices.saturating_sub(pool.n_allocated),
            // Taints and conditions of devices do not count yet.
            "unavailableDevices": 0,
        });
        if let Some(node) = pool.node {
            status["nodeName"] = node.into();
        }
        status
    });
    let mut status = json!({
        "poolCount": n_pools,
        "conditions": [{
            "type": "Complete", "status": "True", "reason": "CalculationComplete",
            "message": format!("Calculated status for {n_shown} pools"),
            "lastTransitionTime": now.rfc3339(),
        }],
    });
    if n_shown > 0 {
        status["pools"] = pools.collect();
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(pool: &str, generation: i64, n_expected: i64, node: Value, n_devices: usize) -> Value {
        json!({"spec": {
            "driver": "d.example.com", "nodeName": node,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": n_expected},
            "devices": vec![json!({"name": "x"}); n_devices],
        }})
    }

    fn answer(spec: Value, slices: &[Value], claims: &[Value]) -> Option<Value> {
        let mut pools = BTreeMap::new();
        slices.iter().for_each(|slice| add_slice(&mut pools, &spec, slice));
        claims.iter().for_each(|claim| add_claim(&mut pools, "d.example.com", claim));
        status(&spec, pools, Timestamp::from_secs(0))
    }

    #[test]
    fn pools_are_those_of_the_newest_generation() {
        let spec = json!({"driver": "d.example.com", "limit": 2});
        let slices = [
            slice("b", 2, 2, json!("n1"), 3),
            slice("b", 1, 1, json!("n1"), 9),
            slice("b", 2, 2, json!("n1"), 1),
            slice("a", 1, 2, json!("n1"), 1),
            slice("a", 1, 2, json!("n2"), 1),
            slice("c", 1, 9, Value::Null, 1),
        ];
        let results = ["b", "b", "a", "a", "a"].map(
            |pool| json!({"driver": "d.example.com", "pool": pool, "device": "x", "request": "r"}),
        );
        let other = json!({"driver": "e.example.com", "pool": "b"});
        let results: Vec<Value> = results.into_iter().chain([other]).collect();
        let claim = json!({"status": {"allocation": {"devices": {"results": results}}}});
        let answer = answer(spec, &slices, &[claim, json!({})]).unwrap();
        let pool = |name: &str, numbers: [u64; 5]| {
            let [generation, slices, total, allocated, available] = numbers;
            json!({
                "driver": "d.example.com", "poolName": name, "generation": generation,
                "resourceSliceCount": slices, "totalDevices": total,
                "allocatedDevices": allocated, "availableDevices": available,
                "unavailableDevices": 0,
            })
        };
        let mut second = pool("b", [2, 2, 4, 2, 2]);
        second["nodeName"] = "n1".into();
        // More is allocated than there is.
        assert_eq!(answer["pools"], json!([pool("a", [1, 2, 2, 3, 0]), second]));
        assert_eq!(answer["poolCount"], 3, "the third is not shown, so it may be incomplete");
        assert_eq!(answer["conditions"][0]["message"], "Calculated status for 2 pools");
    }

    #[test]
    fn an_incomplete_pool_is_waited_for() {
        let slices = [slice("a", 2, 2, Value::Null, 1), slice("b", 1, 1, Value::Null, 1)];
        let spec = |more: Value| {
            let mut spec = json!({"driver": "d.example.com"});
            spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            spec
        };
        assert_eq!(answer(spec(json!({})), &slices, &[]), None);
        let answer_of = |more: Value| answer(spec(more), &slices, &[]).unwrap();
        assert_eq!(answer_of(json!({"poolName": "b"}))["poolCount"], 1);
        let none = answer_of(json!({"poolName": "c"}));
        assert_eq!((&none["poolCount"], &none["pools"]), (&json!(0), &Value::Null));
        assert_eq!(none["conditions"][0]["message"], "Calculated status for 0 pools");
    }

    #[test]
    fn requests_end_an_hour_after_the_answer_or_a_day_after_the_question() {
        let created = "2026-01-01T00:00:00Z";
        let ends = |status: Value| {
            let request = json!({"metadata": {"creationTimestamp": created}, "status": status});
            ends_at(&request).since(Timestamp::parse(created).unwrap()).as_secs() / 60
        };
        assert_eq!(ends(Value::Null), 24 * 60);
        assert_eq!(ends(json!({"poolCount": 0})), 60);
        for kind in ["Complete", "Failed"] {
            let condition = json!({"type": kind, "lastTransitionTime": "2026-01-01T00:30:00Z"});
            assert_eq!(ends(json!({"conditions": [condition]})), 90);
        }
    }
}
