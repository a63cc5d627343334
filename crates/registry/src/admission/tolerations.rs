//! Lists of tolerations.
use crate::kind::text;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Both lists without tolerations that another one covers; of equal ones the first stays.
///
/// A toleration can be covered only by an equal one and by those of a few classes. So each is
/// compared with the best ones of these, and not with all others.
pub(super) fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut later: Vec<Vec<Best<'_>>> = Vec::with_capacity(all.len());
    let mut best: HashMap<Class<'_>, Best<'_>> = HashMap::new();
    for toleration in all.iter().rev() {
        let covering = Class::covering(toleration);
        later.push(covering.filter_map(|class| best.get(&class).cloned()).collect());
        if let Some(class) = Class::of(toleration) {
            best.entry(class).or_default().add(toleration);
        }
    }
    let mut kept: Vec<Value> = Vec::with_capacity(all.len());
    let mut equal: HashSet<&Value> = HashSet::new();
    let mut before: HashMap<Class<'_>, Best<'_>> = HashMap::new();
    for (toleration, later) in all.iter().zip(later.into_iter().rev()) {
        let is_covered = |other: &&Value| covers(other, toleration);
        let is_repeated = equal.contains(toleration);
        let is_covered_before = || {
            let classes = Class::covering(toleration).filter_map(|class| before.get(&class));
            classes.flat_map(Best::both).any(|other| is_covered(&other))
        };
        let is_covered_later = || {
            let others = later.iter().flat_map(Best::both).filter(|other| other != toleration);
            others.into_iter().any(|other| is_covered(&other))
        };
        if is_repeated || is_covered_before() || is_covered_later() {
            continue;
        }
        equal.insert(toleration);
        if let Some(class) = Class::of(toleration) {
            before.entry(class).or_default().add(toleration);
        }
        kept.push((*toleration).clone());
    }
    kept
}

/// Tolerations that differ in their seconds only, as far as coverage is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Class<'t> {
    key: &'t str,
    effect: &'t str,
    /// `None`: all values.
    value: Option<&'t str>,
}
impl<'t> Class<'t> {
    /// `None`: it covers nothing but itself.
    fn of(toleration: &'t Value) -> Option<Self> {
        let value = match text(toleration, "operator") {
            "Exists" => None,
            "" | "Equal" => Some(text(toleration, "value")),
            _ => return None,
        };
        Some(Self { key: text(toleration, "key"), effect: text(toleration, "effect"), value })
    }
    /// The classes whose tolerations may cover one.
    fn covering(toleration: &'t Value) -> impl Iterator<Item = Self> {
        let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
        let own = Self::of(toleration).and_then(|class| class.value);
        let keys = if key.is_empty() { vec![key] } else { vec![key, ""] };
        let effects = if effect.is_empty() { vec![effect] } else { vec![effect, ""] };
        let values = if own.is_none() { vec![None] } else { vec![None, own] };
        let mut classes = Vec::with_capacity(8);
        for key in keys {
            for &effect in &effects {
                classes.extend(values.iter().map(|value| Self { key, effect, value: *value }));
            }
        }
        classes.into_iter()
    }
}

/// The toleration of a class that covers most, and the next one that is not equal to it.
#[derive(Debug, Clone, Default)]
struct Best<'t> {
    first: Option<&'t Value>,
    second: Option<&'t Value>,
}
impl<'t> Best<'t> {
    fn add(&mut self, toleration: &'t Value) {
        // Without seconds, a toleration has no end.
        let end = |one: &Value| {
            let seconds = one["tolerationSeconds"].as_i64();
            (seconds.is_none(), seconds.unwrap_or_default())
        };
        let is_more = |than: Option<&Value>| than.is_none_or(|than| end(toleration) > end(than));
        if self.first == Some(toleration) {
            return;
        }
        if is_more(self.first) {
            self.second = self.first.replace(toleration);
        } else if is_more(self.second) {
            self.second = Some(toleration);
        }
    }
    fn both(&self) -> impl Iterator<Item = &'t Value> + use<'t> {
        [self.first, self.second].into_iter().flatten()
    }
}

/// Whether `wide` tolerates every taint that `narrow` tolerates, for as long.
pub(super) fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let (wide_key, exists) = (text(wide, "key"), text(wide, "operator") == "Exists");
    if text(narrow, "key") != wide_key && !(wide_key.is_empty() && exists) {
        return false;
    }
    let effect = text(wide, "effect");
    if text(narrow, "effect") != effect && !effect.is_empty() {
        return false;
    }
    if effect == "NoExecute"
        && let Some(most) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match text(wide, "operator") {
        "Exists" => true,
        "" | "Equal" => {
            matches!(text(narrow, "operator"), "" | "Equal")
                && text(narrow, "value") == text(wide, "value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn covered_tolerations_are_dropped() {
        let narrow = json!({"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"});
        let wide = json!({"key": "a", "operator": "Exists"});
        let other = json!({"key": "b", "value": "1"});
        let all = |first: &[&Value], second: &[&Value]| {
            let owned = |list: &[&Value]| list.iter().map(|t| (*t).clone()).collect::<Vec<_>>();
            merged(&owned(first), &owned(second))
        };
        assert_eq!(all(&[&narrow], &[&wide]), std::slice::from_ref(&wide));
        assert_eq!(all(&[&wide], &[&narrow, &other]), [wide.clone(), other.clone()]);
        assert_eq!(all(&[&other], &[&other]), [other]);
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30});
        assert!(covers(&long, &short) && !covers(&short, &long));
        assert!(covers(&json!({"operator": "Exists"}), &long));
    }

    /// As [`merged`], by comparing each with all others.
    fn compared(all: &[Value]) -> Vec<Value> {
        let mut kept: Vec<Value> = Vec::new();
        for (i, toleration) in all.iter().enumerate() {
            let before = kept.iter().any(|other| covers(other, toleration));
            let mut after = all[i + 1..].iter();
            if !before && !after.any(|other| other != toleration && covers(other, toleration)) {
                kept.push(toleration.clone());
            }
        }
        kept
    }

    fn toleration() -> impl Strategy<Value = Value> {
        let word = |words: &'static [&'static str]| prop::sample::select(words);
        let seconds = prop::option::of(0..3_i64);
        let parts = (
            word(&["", "a", "b"]),
            word(&["", "Equal", "Exists", "Other"]),
            word(&["", "1", "2"]),
            word(&["", "NoSchedule", "NoExecute"]),
            seconds,
        );
        parts.prop_map(|(key, operator, value, effect, seconds)| {
            let mut one = json!({"tolerationSeconds": seconds});
            let texts =
                [("key", key), ("operator", operator), ("value", value), ("effect", effect)];
            for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                one[name] = text.into();
            }
            one
        })
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_all_comparisons_leave(all in prop::collection::vec(toleration(), 0..12), at in 0..12_usize) {
            let (first, second) = all.split_at(at.min(all.len()));
            prop_assert_eq!(merged(first, second), compared(&all));
        }
    }

    #[test]
    fn many_tolerations_are_merged_at_once() {
        let many: Vec<Value> =
            (0..20_000).map(|n| json!({"key": "a", "value": n.to_string()})).collect();
        assert_eq!(merged(&many, &[json!({"key": "b", "operator": "Exists"})]).len(), 20_001);
    }
}
