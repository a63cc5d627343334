//! How fast the nodes of a zone get the taints that evict their pods.
//!
//! A controller that sees many nodes fail cannot know whether the nodes or its own view of them
//! failed, so it goes slowly:
//!
//! | of a zone's nodes | are tainted |
//! |---|---|
//! | some are ready, and at most two or fewer than 55 % are not | one in 10 s |
//! | 55 % or more are not ready, and at least three | one in 100 s; in a zone of at most 50 nodes, none |
//! | none is ready | one in 10 s |
//! | none is ready, in all zones | none, and those that have the taints lose them |
//!
//! The figures are those of kube-controller-manager's `--node-eviction-rate`,
//! `--secondary-node-eviction-rate`, `--unhealthy-zone-threshold` and
//! `--large-cluster-size-threshold`.

use super::super::node_pods::NodeView;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A node in this time.
const INTERVAL: Duration = Duration::from_secs(10);
/// A node in this time, in a large zone of which most are not ready.
const SLOW_INTERVAL: Duration = Duration::from_secs(100);
/// Zones with more nodes are large.
const LARGE: usize = 50;
/// So many percent of a zone's nodes are most of them.
const MOST_PERCENT: usize = 55;
/// Fewer nodes that are not ready are never most of them.
const MOST_MIN: usize = 3;
/// How long a node waits for others that fail with it, before it is tainted.
const SETTLE: Duration = Duration::from_secs(1);

/// Nodes with this label say nothing about their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// The labels of zones and regions, the older name behind the newer one.
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: [&str; 2] =
    ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

/// A region and a zone; empty ones for a node without labels.
type ZoneName = Arc<(String, String)>;

/// The nodes by their zones.
#[derive(Debug, Default)]
pub(super) struct Zones {
    nodes: BTreeMap<Arc<str>, Member>,
    zones: BTreeMap<ZoneName, Zone>,
    /// The number of zones in which a node is ready.
    n_with_ready: usize,
}

#[derive(Debug)]
struct Member {
    zone: ZoneName,
    is_ready: bool,
    is_counted: bool,
    /// Since when it is as it is.
    since: Instant,
}

#[derive(Debug)]
struct Zone {
    n_ready: usize,
    n_not_ready: usize,
    /// When the next node may be tainted.
    next: Instant,
}

/// How a zone's nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Normal,
    /// Most are not ready.
    Partial,
    /// None is ready.
    Full,
}

/// What a change of one node means for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Nodes that are not ready and may now be tainted at another rate.
    pub(super) others: Vec<Arc<str>>,
    /// A node is ready again, after none was.
    pub(super) is_back: bool,
}

/// Whether a node gets the taints that evict its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now: the zone's turn is taken.
    Now,
    /// Ask again then.
    Later(Instant),
    /// Not before something changes.
    Never,
}

impl Zone {
    fn state(&self) -> State {
        let n = self.n_ready + self.n_not_ready;
        match (self.n_ready, self.n_not_ready) {
            (0, 1..) => State::Full,
            (_, not) if not >= MOST_MIN && not * 100 >= n * MOST_PERCENT => State::Partial,
            _ => State::Normal,
        }
    }

    fn interval(&self) -> Option<Duration> {
        match self.state() {
            State::Normal | State::Full => Some(INTERVAL),
            State::Partial => (self.n_ready + self.n_not_ready > LARGE).then_some(SLOW_INTERVAL),
        }
    }

    fn count(&mut self, is_ready: bool) -> &mut usize {
        if is_ready { &mut self.n_ready } else { &mut self.n_not_ready }
    }
}

impl Zones {
    /// Notes what a node is.
    pub(super) fn note(&mut self, name: &Arc<str>, node: &NodeView, now: Instant) -> Noted {
        let labels = node.metadata.labels.as_ref();
        let label = |names: [&str; 2]| {
            let found = names.into_iter().find_map(|name| labels?.get(name));
            found.cloned().unwrap_or_default()
        };
        let zone = (label(REGION), label(ZONE));
        let is_ready = node.condition("Ready") == "True";
        let is_counted = !labels.is_some_and(|labels| labels.contains_key(EXCLUDED));
        let before = self.nodes.get(name);
        if before.is_some_and(|before| {
            *before.zone == zone && before.is_ready == is_ready && before.is_counted == is_counted
        }) {
            return Noted::default();
        }
        let zone = match self.zones.get_key_value(&zone) {
            Some((known, _)) => known.clone(),
            None => Arc::new(zone),
        };
        self.change(name, Some(Member { zone, is_ready, is_counted, since: now }), now)
    }

    /// Forgets a node.
    pub(super) fn remove(&mut self, name: &Arc<str>, now: Instant) -> Noted {
        self.change(name, None, now)
    }

    /// Whether no node of any zone is ready: then none is tainted.
    pub(super) fn are_all_down(&self) -> bool {
        self.n_with_ready == 0 && !self.zones.is_empty()
    }

    /// Asks for a node that is not ready and has none of the taints.
    pub(super) fn turn(&mut self, name: &str, now: Instant) -> Turn {
        let are_all_down = self.are_all_down();
        let Some(node) = self.nodes.get(name).filter(|_| !are_all_down) else { return Turn::Never };
        let Some(zone) = self.zones.get_mut(&node.zone) else {
            // None of the zone is counted.
            return Turn::Now;
        };
        let Some(interval) = zone.interval() else { return Turn::Never };
        let at = zone.next.max(node.since + SETTLE);
        if now < at {
            return Turn::Later(at);
        }
        zone.next = now + interval;
        Turn::Now
    }

    /// Gives back a turn that was not used.
    pub(super) fn give_back(&mut self, name: &str, now: Instant) {
        let zone = self.nodes.get(name).and_then(|node| self.zones.get_mut(&node.zone));
        if let Some(zone) = zone {
            zone.next = now;
        }
    }

    fn change(&mut self, name: &Arc<str>, member: Option<Member>, now: Instant) -> Noted {
        let were_all_down = self.are_all_down();
        let zones: Vec<_> = [self.nodes.get(name), member.as_ref()]
            .into_iter()
            .flatten()
            .map(|member| member.zone.clone())
            .collect();
        let intervals = |of: &Self| -> Vec<_> {
            zones.iter().map(|zone| of.zones.get(zone).map(Zone::interval)).collect()
        };
        let before = intervals(self);
        let former = match member {
            None => self.nodes.remove(name),
            Some(member) => {
                self.count(&member, now, 1);
                self.nodes.insert(name.clone(), member)
            }
        };
        if let Some(former) = former {
            self.count(&former, now, -1);
        }
        let are_all_down = self.are_all_down();
        let is_changed = intervals(self) != before;
        let others = match (were_all_down == are_all_down, is_changed) {
            (true, false) => Vec::new(),
            (is_same, _) => {
                let of = |node: &Member| !is_same || zones.contains(&node.zone);
                let others = self.nodes.iter().filter(|(_, node)| !node.is_ready && of(node));
                others.map(|(name, _)| name.clone()).collect()
            }
        };
        Noted { others, is_back: were_all_down && !are_all_down && !self.nodes.is_empty() }
    }

    /// Counts a node, or no longer.
    fn count(&mut self, member: &Member, now: Instant, by: isize) {
        if !member.is_counted {
            return;
        }
        let zone = self.zones.entry(member.zone.clone()).or_insert_with(|| Zone {
            n_ready: 0,
            n_not_ready: 0,
            next: now,
        });
        let had_ready = zone.n_ready > 0;
        let n = zone.count(member.is_ready);
        *n = n.saturating_add_signed(by);
        let has_ready = zone.n_ready > 0;
        if zone.n_ready + zone.n_not_ready == 0 {
            self.zones.remove(&member.zone);
        }
        match (had_ready, has_ready) {
            (false, true) => self.n_with_ready += 1,
            (true, false) => self.n_with_ready -= 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(zone: &str, is_ready: bool) -> NodeView {
        let status = if is_ready { "True" } else { "Unknown" };
        let labels = json!({"topology.kubernetes.io/zone": zone});
        let conditions = json!([{"type": "Ready", "status": status}]);
        serde_json::from_value(json!({
            "metadata": {"labels": labels}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// Zones of nodes `a0`, `a1`, … of which the first ones are not ready.
    fn zones(sizes: &[(&str, usize, usize)], now: Instant) -> Zones {
        let mut zones = Zones::default();
        for (zone, n, n_down) in sizes {
            for i in 0..*n {
                zones.note(&format!("{zone}{i}").into(), &node(zone, i >= *n_down), now);
            }
        }
        zones
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_of_a_zone_are_tainted_one_after_another() {
        let start = Instant::now();
        let mut zones = zones(&[("a", 10, 2), ("b", 3, 1)], start);
        let settled = start + SETTLE;
        assert_eq!(zones.turn("a0", start), Turn::Later(settled), "others may fail with it");
        assert_eq!(zones.turn("a0", settled), Turn::Now);
        assert_eq!(zones.turn("a1", settled), Turn::Later(settled + INTERVAL));
        assert_eq!(zones.turn("b0", settled), Turn::Now, "another zone");
        zones.give_back("a0", settled);
        assert_eq!(zones.turn("a1", settled), Turn::Now);
    }

    #[tokio::test(start_paused = true)]
    async fn most_nodes_of_a_zone_are_tainted_slowly_or_not_at_all() {
        let start = Instant::now();
        let at = start + SETTLE;
        // Two of three are more than half, but fewer than three.
        assert_eq!(zones(&[("a", 3, 2)], start).turn("a0", at), Turn::Now);
        assert_eq!(zones(&[("a", 5, 3)], start).turn("a0", at), Turn::Never);
        let mut large = zones(&[("a", 51, 29)], start);
        assert_eq!(large.turn("a0", at), Turn::Now);
        assert_eq!(large.turn("a1", at), Turn::Later(at + SLOW_INTERVAL));
        // A whole zone is down, and another one is not.
        assert_eq!(zones(&[("a", 9, 9), ("b", 1, 0)], start).turn("a0", at), Turn::Now);
    }

    #[tokio::test(start_paused = true)]
    async fn none_is_tainted_if_all_are_down_until_one_is_back() {
        let start = Instant::now();
        let at = start + SETTLE;
        let mut zones = zones(&[("a", 2, 1), ("b", 1, 1)], start);
        assert!(!zones.are_all_down());
        let a1: Arc<str> = "a1".into();
        let noted = zones.note(&a1, &node("a", false), start);
        let names = |noted: &Noted| noted.others.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&noted), ["a0", "a1", "b0"]);
        assert!(zones.are_all_down() && !noted.is_back);
        assert_eq!(zones.turn("a0", at), Turn::Never);
        let noted = zones.note(&a1, &node("a", true), start);
        assert_eq!((names(&noted), noted.is_back), (vec!["a0".to_owned(), "b0".to_owned()], true));
        assert_eq!(zones.note(&a1, &node("a", true), start), Noted::default(), "no change");
        assert_eq!(zones.turn("a0", at), Turn::Now);
        // A zone that is gone counts no longer.
        zones.remove(&a1, start);
        assert!(zones.are_all_down());
        for name in ["a0", "b0"] {
            zones.remove(&name.into(), start);
        }
        assert!(!zones.are_all_down() && zones.zones.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn excluded_nodes_say_nothing_about_their_zone() {
        let now = Instant::now();
        let mut zones = zones(&[("a", 1, 0)], now);
        let mut excluded = node("a", false);
        let label = (EXCLUDED.to_owned(), String::new());
        excluded.metadata.labels.get_or_insert_default().extend([label]);
        for i in 0..9 {
            zones.note(&format!("x{i}").into(), &excluded, now);
        }
        assert_eq!(zones.turn("x0", now + SETTLE), Turn::Now);
    }
}
