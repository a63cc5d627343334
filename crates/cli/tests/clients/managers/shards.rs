//! Three replicas share the keys of one controller while every object is rewritten continuously.
//! One is killed, another joins.

use super::child::{LEASE, Role};
use super::process::{Line, Process};
use super::witness::Witness;
use super::{SLACK, wall};
use crate::server::{PATIENCE, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Number of objects at first.
const N_MAPS: usize = 24;
/// Number of objects that are added while one replica is gone.
const N_MORE: usize = 8;

/// A pass over a key.
#[derive(Debug, Clone, Copy)]
struct Pass<'a> {
    who: &'a str,
    began: u64,
    ended: u64,
}

/// One replica, with its name, and the wall-clock time in µs at which it was killed.
struct Replica {
    name: &'static str,
    process: Process,
    killed: Option<u64>,
}

impl Replica {
    fn start(server: &Server, name: &'static str) -> Self {
        Self { name, process: Process::start(server, Role::sharing(name)), killed: None }
    }
}

/// All lines written by the replicas.
struct Journals {
    lines: Vec<(&'static str, Vec<Line>, Option<u64>)>,
}

impl Journals {
    fn by(replicas: &[Replica]) -> Self {
        let lines =
            replicas.iter().map(|replica| (replica.name, replica.process.lines(), replica.killed));
        Self { lines: lines.collect() }
    }

    /// The passes over each key, by their start. A pass that has not ended lasts until its process
    /// was killed, or forever.
    fn passes(&self) -> BTreeMap<&str, Vec<Pass<'_>>> {
        let mut passes: BTreeMap<&str, Vec<Pass<'_>>> = BTreeMap::new();
        for (who, lines, killed) in &self.lines {
            for line in lines {
                let of_key = passes.entry(&line.key).or_default();
                match &*line.what {
                    "begin" => {
                        let ended = killed.unwrap_or(u64::MAX);
                        of_key.push(Pass { who, began: line.at, ended });
                    }
                    "end" => {
                        let pass = of_key.iter_mut().rev().find(|pass| pass.who == *who);
                        pass.unwrap().ended = line.at;
                    }
                    _ => {}
                }
            }
        }
        passes.retain(|_, passes| !passes.is_empty());
        passes.values_mut().for_each(|passes| passes.sort_by_key(|pass| pass.began));
        passes
    }

    /// The owner of the last pass over each key that started after `since`.
    fn owners(&self, since: u64) -> BTreeMap<String, String> {
        let passes = self.passes();
        let last = passes.iter().filter_map(|(key, passes)| {
            let last = passes.last().filter(|pass| pass.began > since)?;
            Some(((*key).to_owned(), last.who.to_owned()))
        });
        last.collect()
    }

    /// Asserts that no key was processed by two replicas at once.
    #[track_caller]
    fn assert_exclusive(&self) {
        for (key, passes) in self.passes() {
            for two in passes.windows(2) {
                assert!(two[0].ended <= two[1].began, "{key} is in two hands: {two:?}");
            }
        }
    }

    /// The keys over which a replica other than the owner has started a pass since.
    fn strays(&self, owners: &BTreeMap<String, String>, since: u64) -> BTreeSet<String> {
        let passes = self.passes();
        let strays = passes.into_iter().filter(|(key, passes)| {
            let owner = owners.get(*key);
            let since = passes.iter().filter(|pass| pass.began > since);
            owner.is_some_and(|owner| since.clone().any(|pass| pass.who != owner))
        });
        strays.map(|(key, _)| key.to_owned()).collect()
    }
}

/// Waits until every key has had a pass, and returns the owners; repeated until two rounds agree.
fn settle(replicas: &[Replica], n_keys: usize, limit: Duration) -> BTreeMap<String, String> {
    let started = Instant::now();
    let mut before = BTreeMap::new();
    loop {
        let since = wall();
        let owners = loop {
            let owners = Journals::by(replicas).owners(since);
            if owners.len() == n_keys {
                break owners;
            }
            assert!(started.elapsed() < limit, "{} of {n_keys} keys have passes", owners.len());
            std::thread::sleep(Duration::from_millis(20));
        };
        if owners == before {
            return owners;
        }
        before = owners;
    }
}

#[test]
fn replicas_share_keys_and_lose_one() {
    let server = Server::start();
    let witness = Witness::of(&server);
    witness.create(0..N_MAPS);
    let mut replicas: Vec<Replica> =
        ["a", "b", "c"].map(|name| Replica::start(&server, name)).into();
    // A replica may be alone for a while: wait until all have keys.
    let mut owners = settle(&replicas, N_MAPS, PATIENCE);
    let started = Instant::now();
    while owners.values().collect::<BTreeSet<_>>().len() < 3 {
        assert!(started.elapsed() < PATIENCE, "{owners:?}");
        owners = settle(&replicas, N_MAPS, PATIENCE);
    }
    let shared = wall();
    let n_of = |owners: &BTreeMap<String, String>, name| {
        owners.values().filter(|owner| *owner == name).count()
    };
    println!("a has {}, b {}, c {}", n_of(&owners, "a"), n_of(&owners, "b"), n_of(&owners, "c"));

    replicas[1].process.signal("KILL");
    replicas[1].process.wait();
    replicas[1].killed = Some(wall());
    let killed = Instant::now();
    witness.create(N_MAPS..N_MAPS + N_MORE);
    let without = settle(&replicas, N_MAPS + N_MORE, LEASE + SLACK * 4);
    println!("all keys of the killed one have passes again after {:?}", killed.elapsed());
    let journals = Journals::by(&replicas);
    journals.assert_exclusive();
    // No key of another replica has moved.
    let unmoved: BTreeMap<_, _> = owners.into_iter().filter(|(_, owner)| owner != "b").collect();
    assert_eq!(journals.strays(&unmoved, shared), BTreeSet::new(), "keys moved that need not");
    assert_eq!(n_of(&without, "b"), 0);

    let lost_one = wall();
    replicas.push(Replica::start(&server, "d"));
    let joined = Instant::now();
    let mut with = settle(&replicas, N_MAPS + N_MORE, PATIENCE);
    while n_of(&with, "d") == 0 {
        assert!(joined.elapsed() < PATIENCE, "d has no keys: {with:?}");
        with = settle(&replicas, N_MAPS + N_MORE, PATIENCE);
    }
    println!("d has {} keys after {:?}", n_of(&with, "d"), joined.elapsed());
    let journals = Journals::by(&replicas);
    journals.assert_exclusive();
    let unmoved: BTreeMap<_, _> = without.into_iter().filter(|(key, _)| with[key] != "d").collect();
    assert_eq!(journals.strays(&unmoved, lost_one), BTreeSet::new(), "keys moved that need not");

    let stopped = Instant::now();
    replicas[0].process.signal("TERM");
    assert_eq!(replicas[0].process.wait(), Some(0));
    let last = settle(&replicas, N_MAPS + N_MORE, PATIENCE);
    println!("all keys of the one that left have passes after {:?}", stopped.elapsed());
    assert_eq!(n_of(&last, "a"), 0);
    Journals::by(&replicas).assert_exclusive();
}
