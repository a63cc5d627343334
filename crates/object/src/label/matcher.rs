//! Matching of many objects with one selector.
use super::{Operator, Requirement, Selector};

/// A selector, prepared to be matched with many objects.
///
/// A match takes `l · log r` steps for `l` labels and `r` requirements, where
/// [`Selector::matches`] looks up a label for each requirement.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    /// Sorted by key; one for each.
    conditions: Vec<Condition>,
    /// Keys that an object must have.
    n_needed: usize,
}

/// All requirements of one key.
#[derive(Debug, Clone, Default)]
struct Condition {
    key: Box<str>,
    /// The label must exist.
    is_needed: bool,
    /// The label must not exist.
    is_forbidden: bool,
    /// The only possible values, sorted. `None`: any.
    among: Option<Vec<Box<str>>>,
    /// Impossible values, sorted once all are known.
    not_among: Vec<Box<str>>,
    /// The label is an integer beyond this one.
    greater_than: Option<i64>,
    /// The label is an integer below this one.
    less_than: Option<i64>,
}

impl From<&Selector> for Matcher {
    fn from(selector: &Selector) -> Self {
        let of_keys = selector.requirements.chunk_by(|a, b| a.key == b.key);
        let conditions: Vec<_> = of_keys.map(Condition::of).collect();
        let n_needed = conditions.iter().filter(|condition| condition.is_needed).count();
        Self { conditions, n_needed }
    }
}

impl Matcher {
    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        self.conditions.is_empty()
    }
    /// Matches an object's labels. Their keys must be unique.
    pub fn matches<K: AsRef<str>, V: AsRef<str>>(&self, labels: &[(K, V)]) -> bool {
        if labels.len() < self.n_needed {
            return false;
        }
        let mut n_found = 0;
        for (key, value) in labels {
            let found = self.conditions.binary_search_by(|known| (*known.key).cmp(key.as_ref()));
            let Some(condition) = found.ok().and_then(|at| self.conditions.get(at)) else {
                continue;
            };
            if !condition.holds(value.as_ref()) {
                return false;
            }
            n_found += usize::from(condition.is_needed);
        }
        n_found == self.n_needed
    }
}

impl Condition {
    /// `requirements` have one key.
    fn of(requirements: &[Requirement]) -> Self {
        let mut all = Self::default();
        for Requirement { key, operator, values } in requirements {
            if all.key.is_empty() {
                all.key = key.as_str().into();
            }
            let own = || values.iter().map(|value| Box::<str>::from(value.as_str()));
            match operator {
                Operator::Exists => all.is_needed = true,
                Operator::DoesNotExist => all.is_forbidden = true,
                Operator::In | Operator::Equals => all.limit(own()),
                Operator::NotIn | Operator::NotEquals => all.not_among.extend(own()),
                Operator::GreaterThan | Operator::LessThan => {
                    all.is_needed = true;
                    let Some(bound) = values.first().and_then(|value| value.parse().ok()) else {
                        all.limit([].into_iter());
                        continue;
                    };
                    match operator {
                        Operator::GreaterThan => {
                            all.greater_than = all.greater_than.max(Some(bound));
                        }
                        _ => {
                            let former = all.less_than.unwrap_or(bound);
                            all.less_than = Some(former.min(bound));
                        }
                    }
                }
            }
        }
        all.not_among.sort_unstable();
        all
    }
    /// Only these values, which are sorted.
    fn limit(&mut self, values: impl Iterator<Item = Box<str>>) {
        self.is_needed = true;
        self.among = Some(match self.among.take() {
            None => values.collect(),
            Some(former) => values.filter(|value| former.binary_search(value).is_ok()).collect(),
        });
    }
    /// Whether the label may have this value.
    fn holds(&self, value: &str) -> bool {
        let is_one_of = |values: &[Box<str>]| values.binary_search_by(|v| (**v).cmp(value)).is_ok();
        let has_bounds = self.greater_than.is_some() || self.less_than.is_some();
        let is_within = || {
            value.parse::<i64>().is_ok_and(|number| {
                self.greater_than.is_none_or(|bound| number > bound)
                    && self.less_than.is_none_or(|bound| number < bound)
            })
        };
        !self.is_forbidden
            && self.among.as_deref().is_none_or(is_one_of)
            && !is_one_of(&self.not_among)
            && (!has_bounds || is_within())
    }
}
