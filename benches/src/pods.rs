//! The Pods that are served to every client.
//!
//! # How the bytes are made
//!
//! A Pod is a template ([`POD`], in the order in which an API server writes one) filled with values
//! that differ between the Pods of a cluster. Everything derives from a number: the same seed and
//! index give the same bytes on every machine.
//!
//! - Pods belong to workloads of 12, 24, 36 … replicas. The Pods of a workload have the same
//!   namespace, name, image, version, resources, port, owner and checksum of the configuration, as
//!   those of a real ReplicaSet do.
//! - Values that a server or a node generates for each Pod differ for each: the name's suffix, uid,
//!   times, addresses, the id of the container (64 random hexadecimal digits), the name of the
//!   token volume. So a compressor finds the redundancy of a cluster: much that repeats in all
//!   Pods, some that repeats in a workload, and about 150 random bytes in each.
//! - Lists are sorted by namespace and name; events are in no such order.
//! - Two `managedFields` entries, the controller's and the kubelet's; every tenth Pod has a second
//!   container.
//! - A changed Pod has a new resourceVersion, and its `status` became ready or unready at another
//!   time.
//!
//! As from a real server, items of a list have no `kind` and `apiVersion`, objects of a watch do. A
//! client that requests `PartialObjectMetadata` gets the same metadata and nothing else.

use std::fmt::Write;

/// The Pod. `$name$` is a value; two of them are parts that only some Pods have.
const POD: &str = include_str!("pods/pod.json.txt");
const SIDECAR: &str = include_str!("pods/sidecar.json.txt");
const SIDECAR_STATUS: &str = include_str!("pods/sidecar_status.json.txt");

/// One in this many Pods has a second container.
const SIDECAR_EVERY: u64 = 10;

/// The resourceVersion of every list; events have later ones.
pub(crate) const LIST_VERSION: u64 = 48_000_000;

/// A piece of a template.
enum Piece {
    Text(&'static str),
    /// The index of a value in [`Values`].
    Value(usize),
    Sidecar,
    SidecarStatus,
}

/// Hashes a number; SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A sequence of pseudorandom numbers.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            let _ = write!(text, "{:016x}", self.next());
        }
        text.truncate(digits);
        text
    }

    /// A suffix as Kubernetes generates it: no vowels, so that it does not form a word.
    fn suffix(&mut self, letters: usize) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..letters).map(|_| LETTERS[self.below(LETTERS.len() as u64) as usize] as char).collect()
    }

    fn uid(&mut self) -> String {
        let hex = self.hex(32);
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        format!("{a}-{b}-4{c}-a{d}-{e}")
    }
}

/// A timestamp in October 2026, given its seconds since the start of that month.
fn time(seconds: u64) -> String {
    let (day, rest) = (1 + seconds / 86_400 % 31, seconds % 86_400);
    format!("2026-10-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

const SUBJECTS: &[&str] = &[
    "account",
    "audit",
    "billing",
    "cart",
    "catalog",
    "checkout",
    "customer",
    "delivery",
    "events",
    "fraud",
    "identity",
    "inventory",
    "ledger",
    "loyalty",
    "media",
    "notify",
    "orders",
    "payments",
    "pricing",
    "profile",
    "recommend",
    "reports",
    "returns",
    "search",
    "sessions",
    "shipping",
    "tax",
];
const ROLES: &[&str] =
    &["api", "worker", "web", "consumer", "scheduler", "gateway", "exporter", "cache", "sync"];
const TEAMS: &[&str] = &[
    "atlas", "beacon", "cobalt", "dynamo", "ember", "falcon", "granite", "harbor", "indigo",
    "juniper",
];

/// All Pods of one run.
pub(crate) struct Pods {
    seed: u64,
    pub(crate) n_objects: u64,
    pieces: Vec<Piece>,
    sidecar: Vec<Piece>,
    sidecar_status: Vec<Piece>,
}

/// Splits a template into pieces, without its line ends.
fn pieces(template: &'static str, values: &Values) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for line in template.lines() {
        for (n, part) in line.split('$').enumerate() {
            pieces.push(match part {
                text if n % 2 == 0 => Piece::Text(text),
                "sidecar" => Piece::Sidecar,
                "sidecar_status" => Piece::SidecarStatus,
                name => Piece::Value(values.place(name)),
            });
        }
    }
    pieces
}

impl Pods {
    pub(crate) fn new(seed: u64, n_objects: u64) -> Self {
        let values = values(seed, n_objects, 0, None);
        Self {
            seed,
            n_objects,
            pieces: pieces(POD, &values),
            sidecar: pieces(SIDECAR, &values),
            sidecar_status: pieces(SIDECAR_STATUS, &values),
        }
    }

    /// The indices sorted by namespace and name, in which order a server lists them.
    pub(crate) fn sorted(&self) -> Vec<u32> {
        let mut keyed: Vec<(String, u32)> = (0..self.n_objects)
            .map(|index| {
                let values = values(self.seed, self.n_objects, index, None);
                let of = |name: &str| values.list[values.place(name)].1.as_str();
                (format!("{}/{}", of("namespace"), of("name")), index as u32)
            })
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, index)| index).collect()
    }

    /// The Pod that an event changes: all of them in turn, in a scattered order.
    pub(crate) fn changed_by(&self, event: u64) -> u64 {
        // A prime that divides none of the numbers of Pods used here.
        (event % self.n_objects).wrapping_mul(15_485_863) % self.n_objects
    }

    /// Writes Pod `index` as an item of a list, or as changed by an event: `(event,
    /// resourceVersion)`.
    pub(crate) fn write(&self, index: u64, changed: Option<(u64, u64)>, out: &mut Vec<u8>) {
        self.fill(&self.pieces, &values(self.seed, self.n_objects, index, changed), out);
    }

    fn fill(&self, pieces: &[Piece], values: &Values, out: &mut Vec<u8>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Value(place) => out.extend_from_slice(values.list[*place].1.as_bytes()),
                Piece::Sidecar if values.has_sidecar => self.fill(&self.sidecar, values, out),
                Piece::SidecarStatus if values.has_sidecar => {
                    self.fill(&self.sidecar_status, values, out);
                }
                Piece::Sidecar | Piece::SidecarStatus => {}
            }
        }
    }
}

/// The values that differ between Pods, in the same order for all.
fn values(seed: u64, n_objects: u64, index: u64, changed: Option<(u64, u64)>) -> Values {
    // Twelve neighbors share a workload, and a workload may be drawn more than once.
    let workload = mix(seed ^ (index / 12)) % (n_objects / 12 + 1);
    let mut of_workload = Chance(mix(seed ^ 0x5eed_0000 ^ workload));
    let chance = &mut of_workload;
    let app = format!("{}-{}", chance.pick(SUBJECTS), chance.pick(ROLES));
    let team = chance.pick(TEAMS);
    let environment = chance.pick(&["dev", "staging", "prod", "prod", "prod-eu"]);
    let hash = chance.suffix(10);
    let port = [8080, 8443, 9090, 3000, 5000][chance.below(5) as usize];
    let memory = 64 << chance.below(5);
    let mut list = vec![
        ("image", format!("registry.example.com/{team}/{app}")),
        ("version", format!("v{}.{}.{}", chance.below(4), chance.below(60), chance.below(20))),
        ("tier", chance.pick(&["frontend", "backend", "batch", "data"]).to_owned()),
        ("config_sum", chance.hex(64)),
        ("owner_uid", chance.uid()),
        ("image_sum", chance.hex(64)),
        ("log_level", chance.pick(&["info", "info", "debug", "warn"]).to_owned()),
        ("cpu", (50 * (1 + chance.below(20))).to_string()),
        ("delay", (5 * (1 + chance.below(6))).to_string()),
        ("memory", memory.to_string()),
        ("memory_limit", (2 * memory).to_string()),
        ("port", port.to_string()),
        ("namespace", format!("{team}-{environment}")),
        ("replica_set", format!("{app}-{hash}")),
        ("app", app.clone()),
        ("hash", hash.clone()),
    ];
    let rolled = chance.below(20 * 86_400);
    let mut of_pod = Chance(mix(seed ^ 0x0b0d_0000_0000 ^ index));
    let chance = &mut of_pod;
    let node = chance.below(n_objects / 40 + 1);
    let created = rolled + chance.below(900);
    let started = created + 2 + chance.below(40);
    list.extend([
        // The index makes the name unique, in the letters of a suffix.
        ("name", format!("{app}-{hash}-{}", unique(index))),
        ("uid", chance.uid()),
        ("token", format!("kube-api-access-{}", chance.suffix(5))),
        ("pod_ip", format!("10.{}.{}.{}", 64 + node / 250 % 64, node % 250, 2 + chance.below(250))),
        ("host_ip", format!("172.20.{}.{}", node / 250 % 256, node % 250)),
        ("node", format!("node-{}-{:05}", ["a", "b", "c"][node as usize % 3], node)),
        ("container_id", chance.hex(64)),
        ("sidecar_id", chance.hex(64)),
        ("restarts", if chance.below(8) == 0 { chance.below(12) } else { 0 }.to_string()),
        ("created", time(created)),
        ("started", time(started)),
    ]);
    let has_sidecar = chance.below(SIDECAR_EVERY) == 0;
    let first_version = LIST_VERSION / 2 + mix(seed ^ index) % (LIST_VERSION / 2);
    match changed {
        None => list.extend([
            ("rv", first_version.to_string()),
            ("status_time", time(started + 3)),
            ("ready", "True".to_owned()),
            ("is_ready", "true".to_owned()),
        ]),
        Some((event, version)) => {
            let is_ready = event % 2 == 1;
            list.extend([
                ("rv", version.to_string()),
                ("status_time", time(21 * 86_400 + event % 800_000)),
                ("ready", if is_ready { "True" } else { "False" }.to_owned()),
                ("is_ready", is_ready.to_string()),
            ]);
        }
    }
    Values { list, has_sidecar }
}
/// Five letters that encode one index.
fn unique(index: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let n_letters = LETTERS.len() as u64;
    // Scattered, so that neighbors differ: a multiplier without a common factor with 27^5.
    let mut rest = index.wrapping_mul(7_368_787) % n_letters.pow(5);
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        text.push(LETTERS[(rest % n_letters) as usize] as char);
        rest /= n_letters;
    }
    text
}

struct Values {
    list: Vec<(&'static str, String)>,
    has_sidecar: bool,
}

impl Values {
    fn place(&self, name: &str) -> usize {
        // A test checks that every place has a value.
        self.list.iter().position(|(known, _)| *known == name).unwrap_or(0)
    }
}

/// The bytes of an item's metadata.
pub(crate) fn metadata_of(item: &[u8]) -> &[u8] {
    const START: &[u8] = b"{\"metadata\":";
    let end = memchr::memmem::find(item, b",\"spec\":{\"volumes\"").unwrap_or(item.len());
    &item[START.len().min(end)..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use std::collections::HashSet;

    fn written(pods: &Pods, index: u64, changed: Option<(u64, u64)>) -> Vec<u8> {
        let mut out = Vec::new();
        pods.write(index, changed, &mut out);
        out
    }

    #[test]
    fn pods_are_pods_of_the_size_that_is_claimed() {
        let pods = Pods::new(1, 50_000);
        let mut bytes = 0;
        for index in 0..500 {
            let item = written(&pods, index, None);
            let _: Pod = serde_json::from_slice(&item).unwrap();
            let _: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
                serde_json::from_slice(metadata_of(&item)).unwrap();
            bytes += item.len();
        }
        let mean = bytes / 500;
        assert!((4_250..4_600).contains(&mean), "{mean}");
    }

    #[test]
    fn every_place_of_the_templates_has_a_value() {
        let values = values(1, 1_000, 0, None);
        for template in [POD, SIDECAR, SIDECAR_STATUS] {
            for name in template.lines().flat_map(|line| line.split('$').skip(1).step_by(2)) {
                let is_part = name.starts_with("sidecar") && name != "sidecar_id";
                assert!(is_part || values.list.iter().any(|(known, _)| *known == name), "{name}");
            }
        }
    }

    #[test]
    fn keys_and_uids_are_unique_and_events_visit_every_pod() {
        for n_objects in [1_000, 10_000] {
            let pods = Pods::new(1, n_objects);
            let mut names = HashSet::new();
            let mut changed = HashSet::new();
            for index in 0..n_objects {
                let pod: serde_json::Value =
                    serde_json::from_slice(metadata_of(&written(&pods, index, None))).unwrap();
                let of = |name: &str| pod[name].as_str().unwrap_or_default().to_owned();
                assert!(names.insert((of("namespace"), of("name"))), "{index}");
                assert!(names.insert((String::new(), of("uid"))), "{index}");
                changed.insert(pods.changed_by(index));
            }
            assert_eq!(changed.len() as u64, n_objects);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (a, b) = (Pods::new(7, 1_000), Pods::new(7, 1_000));
        assert_eq!(written(&a, 5, Some((3, 9))), written(&b, 5, Some((3, 9))));
        assert_ne!(written(&a, 5, None), written(&Pods::new(8, 1_000), 5, None));
    }
}
