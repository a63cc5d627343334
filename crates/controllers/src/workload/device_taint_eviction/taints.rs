//! The taints of devices that evict pods: from slices and from rules.

use kube_core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use setpoint_object::taint::{Taint, Toleration};
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The effect that evicts pods.
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// The key of a pool. A driver's name has no slash.
pub(super) fn pool_key(driver: &str, pool: &str) -> String {
    format!("{driver}/{pool}")
}

/// A device of a claim, of `status.allocation.devices.results`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Allocated {
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) tolerations: Vec<Toleration>,
}

impl Allocated {
    /// The devices of an allocation.
    pub(super) fn all(allocation: &Value) -> Vec<Self> {
        let results = allocation["devices"]["results"].as_array().into_iter().flatten();
        results.filter_map(|result| Self::deserialize(result).ok()).collect()
    }

    /// When a pod with the device has to leave because of a taint; `None`: never. Of several
    /// tolerations of one taint, the shortest counts, unless one is forever. Only those that name
    /// the effect count. A taint has a date from the API; one without evicts nothing.
    pub(super) fn leaves_at(&self, taint: &Taint) -> Option<Timestamp> {
        let added = taint.time_added.as_deref().and_then(Timestamp::parse)?;
        let matching = self.tolerations.iter();
        let matching = matching.filter(|held| held.effect() == NO_EXECUTE && held.tolerates(taint));
        let mut shortest: Option<u64> = None;
        for toleration in matching {
            let seconds = u64::try_from(toleration.toleration_seconds?).unwrap_or_default();
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
        Some(added + Duration::from_secs(shortest.unwrap_or_default()))
    }
}

/// The identity of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleId {
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// A DeviceTaintRule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) id: Arc<RuleId>,
    pub(super) generation: i64,
    /// `None`: it selects no device.
    selector: Option<Selector>,
    pub(super) taint: Taint,
}

/// The devices that a rule selects. A name that is absent matches every one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Selector {
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
}

impl Rule {
    pub(super) fn read(rule: &DynamicObject) -> Self {
        let spec = &rule.data["spec"];
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        Self {
            id: Arc::new(RuleId { name: text(&rule.metadata.name), uid: text(&rule.metadata.uid) }),
            generation: rule.metadata.generation.unwrap_or_default(),
            selector: Deserialize::deserialize(&spec["deviceSelector"]).unwrap_or_default(),
            taint: Taint::deserialize(&spec["taint"]).unwrap_or_default(),
        }
    }

    pub(super) fn evicts(&self) -> bool {
        self.taint.effect == NO_EXECUTE
    }

    /// Whether it selects a device.
    pub(super) fn selects(&self, device: &Allocated) -> bool {
        self.selects_name(&device.driver, &device.pool, &device.device)
    }

    /// Whether it selects the device of these names.
    pub(super) fn selects_name(&self, driver: &str, pool: &str, device: &str) -> bool {
        let matches =
            |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
        self.selector.as_ref().is_some_and(|selector| {
            matches(&selector.driver, driver)
                && matches(&selector.pool, pool)
                && matches(&selector.device, device)
        })
    }

    /// The value of the index of claims under which those that it may concern are.
    pub(super) fn index_value(&self) -> String {
        let selector = self.selector.as_ref();
        let driver = selector.and_then(|selector| selector.driver.as_deref());
        let pool = selector.and_then(|selector| selector.pool.as_deref());
        match (driver, pool) {
            (None, _) => String::new(),
            (Some(driver), None) => driver.to_owned(),
            (Some(driver), Some(pool)) => pool_key(driver, pool),
        }
    }
}

/// What a slice says about taints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SliceTaints {
    /// The key of its pool.
    pub(super) pool: Arc<str>,
    pub(super) generation: i64,
    /// The taints that evict, by device.
    pub(super) tainted: BTreeMap<Arc<str>, Vec<Taint>>,
}

/// The names of a device and of its slice.
type DeviceOfSlice = (Arc<str>, Arc<str>);

/// The slices of a pool.
#[derive(Debug, Default)]
struct Pool {
    /// How many slices there are of each generation.
    generations: BTreeMap<i64, usize>,
    /// The tainted devices, with the generation of the slice.
    tainted: BTreeMap<DeviceOfSlice, (i64, Vec<Taint>)>,
}

/// A taint that evicts, and the rule that it comes from; `None`: a slice has it.
pub(super) type Evicting = (Taint, Option<Arc<RuleId>>);

/// The taints of all devices.
#[derive(Debug, Default)]
pub(super) struct Taints {
    slices: BTreeMap<Arc<str>, SliceTaints>,
    pools: BTreeMap<Arc<str>, Pool>,
    n_tainted: usize,
    /// Those that evict.
    rules: BTreeMap<Arc<str>, Rule>,
}

impl Taints {
    /// Whether no taint evicts.
    pub(super) fn is_empty(&self) -> bool {
        self.n_tainted == 0 && self.rules.is_empty()
    }

    /// Takes in a slice, or its absence. Returns the pools whose taints may be others now.
    pub(super) fn put_slice(
        &mut self,
        name: &Arc<str>,
        slice: Option<SliceTaints>,
    ) -> Vec<Arc<str>> {
        let before = self.slices.get(name).cloned();
        if before == slice {
            return Vec::new();
        }
        let of_slices = before.iter().chain(&slice);
        let mut pools: Vec<Arc<str>> = of_slices.map(|slice| slice.pool.clone()).collect();
        pools.dedup();
        let has_taints = |taints: &Self, pool: &Arc<str>| {
            taints.pools.get(pool).is_some_and(|pool| !pool.tainted.is_empty())
        };
        let mut concerned: Vec<bool> = pools.iter().map(|pool| has_taints(self, pool)).collect();
        if let Some(before) = before {
            self.slices.remove(name);
            self.remove(name, &before);
        }
        if let Some(slice) = slice {
            self.insert(name, &slice);
            self.slices.insert(name.clone(), slice);
        }
        for (pool, is_concerned) in pools.iter().zip(&mut concerned) {
            *is_concerned |= has_taints(self, pool);
        }
        pools.into_iter().zip(concerned).filter_map(|(pool, is)| is.then_some(pool)).collect()
    }

    fn insert(&mut self, name: &Arc<str>, slice: &SliceTaints) {
        let pool = self.pools.entry(slice.pool.clone()).or_default();
        *pool.generations.entry(slice.generation).or_default() += 1;
        for (device, taints) in &slice.tainted {
            let key = (device.clone(), name.clone());
            pool.tainted.insert(key, (slice.generation, taints.clone()));
        }
        self.n_tainted += slice.tainted.len();
    }

    fn remove(&mut self, name: &Arc<str>, slice: &SliceTaints) {
        let Some(pool) = self.pools.get_mut(&slice.pool) else { return };
        for device in slice.tainted.keys() {
            pool.tainted.remove(&(device.clone(), name.clone()));
        }
        self.n_tainted = self.n_tainted.saturating_sub(slice.tainted.len());
        if let Some(n) = pool.generations.get_mut(&slice.generation) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                pool.generations.remove(&slice.generation);
            }
        }
        if pool.generations.is_empty() {
            self.pools.remove(&slice.pool);
        }
    }

    /// Takes in a rule, or its absence.
    pub(super) fn put_rule(&mut self, name: &Arc<str>, rule: Option<Rule>) {
        match rule.filter(Rule::evicts) {
            Some(rule) => _ = self.rules.insert(name.clone(), rule),
            None => _ = self.rules.remove(name),
        }
    }

    /// A rule that evicts.
    pub(super) fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.get(name)
    }

    /// The newest generation of a pool; older slices do not count.
    pub(super) fn newest(&self, pool: &str) -> Option<i64> {
        self.pools.get(pool)?.generations.last_key_value().map(|(generation, _)| *generation)
    }

    /// The taints of a device.
    pub(super) fn of(&self, device: &Allocated) -> Vec<Evicting> {
        let mut evicting = Vec::new();
        let pool = self.pools.get(&*pool_key(&device.driver, &device.pool));
        if let Some(pool) = pool.filter(|pool| !pool.tainted.is_empty()) {
            let newest = pool.generations.last_key_value().map(|(generation, _)| *generation);
            let start: DeviceOfSlice = (device.device.as_str().into(), "".into());
            let found = pool.tainted.range(start..);
            let found = found.take_while(|((name, _), _)| **name == *device.device);
            for (_, (_, taints)) in found.filter(|(_, (of, _))| Some(*of) == newest) {
                evicting.extend(taints.iter().map(|taint| (taint.clone(), None)));
            }
        }
        let rules = self.rules.values().filter(|rule| rule.selects(device));
        evicting.extend(rules.map(|rule| (rule.taint.clone(), Some(rule.id.clone()))));
        evicting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(pool: &str, generation: i64, tainted: &[(&str, &str)]) -> Option<SliceTaints> {
        let taint = |key: &str| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: NO_EXECUTE.to_owned(),
            time_added: Some(Timestamp::from_secs(100).rfc3339()),
        };
        let tainted = tainted.iter().map(|(device, key)| (Arc::from(*device), vec![taint(key)]));
        Some(SliceTaints { pool: pool.into(), generation, tainted: tainted.collect() })
    }

    fn rule(selector: Value, effect: &str) -> Rule {
        let taint = json!({"key": "rule", "effect": effect});
        let rule = json!({"spec": {"deviceSelector": selector, "taint": taint}});
        Rule::read(&serde_json::from_value(rule).unwrap())
    }

    fn device(name: &str) -> Allocated {
        let [driver, pool, device] = name.split('/').collect::<Vec<_>>()[..] else { panic!() };
        Allocated {
            driver: driver.to_owned(),
            pool: pool.to_owned(),
            device: device.to_owned(),
            tolerations: Vec::new(),
        }
    }

    #[test]
    fn slices_of_the_newest_generation_count() {
        let mut taints = Taints::default();
        let of = |taints: &Taints, name: &str| {
            let found = taints.of(&device(name));
            found.into_iter().map(|(taint, _)| taint.key).collect::<Vec<_>>()
        };
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert!(taints.put_slice(&a, slice("d/p", 1, &[])).is_empty(), "nothing is tainted");
        assert!(taints.is_empty());
        assert_eq!(taints.put_slice(&a, slice("d/p", 1, &[("x", "k")])), ["d/p".into()]);
        assert!(taints.put_slice(&a, slice("d/p", 1, &[("x", "k")])).is_empty(), "no change");
        assert_eq!(of(&taints, "d/p/x"), ["k"]);
        assert!(of(&taints, "d/p/y").is_empty() && of(&taints, "d/q/x").is_empty());
        assert_eq!(taints.put_slice(&b, slice("d/p", 2, &[])), ["d/p".into()]);
        assert!(of(&taints, "d/p/x").is_empty());
        assert_eq!(taints.newest("d/p"), Some(2));
        assert_eq!(taints.put_slice(&b, None), ["d/p".into()]);
        assert_eq!(of(&taints, "d/p/x"), ["k"]);
        // It moves to another pool.
        let moved = taints.put_slice(&a, slice("d/q", 1, &[("x", "k")]));
        assert_eq!(moved, ["d/p".into(), "d/q".into()]);
        assert!(of(&taints, "d/p/x").is_empty() && taints.newest("d/p").is_none());
        assert_eq!(taints.put_slice(&a, None), ["d/q".into()]);
        assert!(taints.is_empty() && taints.pools.is_empty());
    }

    #[test]
    fn rules_select_devices_by_their_names() {
        let check = |selector: Value, index_value: &str, expected: [bool; 3]| {
            let rule = rule(selector, NO_EXECUTE);
            assert_eq!(rule.index_value(), index_value);
            let devices = ["d/p/x", "d/q/x", "e/p/y"].map(device);
            assert_eq!(devices.map(|device| rule.selects(&device)), expected, "{rule:?}");
        };
        check(Value::Null, "", [false; 3]);
        check(json!({}), "", [true; 3]);
        check(json!({"driver": "d"}), "d", [true, true, false]);
        check(json!({"driver": "d", "pool": "p"}), "d/p", [true, false, false]);
        check(json!({"pool": "p"}), "", [true, false, true]);
        check(json!({"device": "x"}), "", [true, true, false]);
        let mut taints = Taints::default();
        taints.put_rule(&"r".into(), Some(rule(json!({}), NO_EXECUTE)));
        let (taint, rule_id) = &taints.of(&device("d/p/x"))[0];
        assert!(taint.key == "rule" && rule_id.is_some());
        taints.put_rule(&"r".into(), Some(rule(json!({}), "NoSchedule")));
        assert!(taints.is_empty());
    }

    #[test]
    fn the_shortest_toleration_of_a_taint_counts_unless_one_is_forever() {
        let taint = Taint {
            key: "k".to_owned(),
            value: String::new(),
            effect: NO_EXECUTE.to_owned(),
            time_added: Some(Timestamp::from_secs(100).rfc3339()),
        };
        let leaves = |tolerations: Value| {
            let mut device = device("d/p/x");
            device.tolerations = serde_json::from_value(tolerations).unwrap();
            device.leaves_at(&taint).map(|at| at.0.as_secs())
        };
        let held = |effect: &str, seconds: Value| {
            let mut held = json!({"operator": "Exists", "effect": effect});
            held["tolerationSeconds"] = seconds;
            held
        };
        assert_eq!(leaves(json!([])), Some(100));
        assert_eq!(
            leaves(json!([held(NO_EXECUTE, 60.into()), held(NO_EXECUTE, 5.into())])),
            Some(105)
        );
        assert_eq!(leaves(json!([held(NO_EXECUTE, (-5).into())])), Some(100));
        assert_eq!(
            leaves(json!([held(NO_EXECUTE, 5.into()), held(NO_EXECUTE, Value::Null)])),
            None
        );
        // As in kube-controller-manager, one for all effects does not count here.
        assert_eq!(leaves(json!([held("", Value::Null)])), Some(100));
        let other = json!({"key": "other", "operator": "Exists", "effect": NO_EXECUTE});
        assert_eq!(leaves(json!([other])), Some(100));
        let undated = Taint { time_added: None, ..taint.clone() };
        assert_eq!(device("d/p/x").leaves_at(&undated), None);
    }
}
