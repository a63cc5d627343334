//! Disks that pods name themselves, and that few pods may share on a node.

use crate::labels::{items, text};
use serde_json::Value;

/// A disk of a pod's volumes: of the four kinds that the attached disk limits, not the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    identity: Identity,
    is_read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    /// `gcePersistentDisk`, by name.
    Gce(String),
    /// `awsElasticBlockStore`, by id.
    Ebs(String),
    /// `iscsi`, by its qualified name.
    Iscsi(String),
    /// `rbd`: an image of a pool, which any of the monitors knows.
    Rbd { monitors: Vec<String>, pool: String, image: String },
}

impl Disk {
    /// The disk of a volume of a pod; `None` for other volumes.
    pub(crate) fn read(volume: &Value) -> Option<Self> {
        let known = ["gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"];
        let (kind, source) =
            known.iter().find_map(|kind| Some((*kind, volume[*kind].as_object()?)))?;
        let own = |member: &str| source.get(member).map_or("", text).to_owned();
        let identity = match kind {
            "gcePersistentDisk" => Identity::Gce(own("pdName")),
            "awsElasticBlockStore" => Identity::Ebs(own("volumeID")),
            "iscsi" => Identity::Iscsi(own("iqn")),
            _ => Identity::Rbd {
                monitors: source
                    .get("monitors")
                    .map_or(&[][..], items)
                    .iter()
                    .map(text)
                    .map(str::to_owned)
                    .collect(),
                pool: own("pool"),
                image: own("image"),
            },
        };
        let is_read_only = source.get("readOnly").is_some_and(|value| *value == true);
        Some(Self { identity, is_read_only })
    }

    /// Whether two pods on one node cannot have both. An EBS volume has one user, and of the other
    /// kinds all users must read only.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let (is_same, may_share) = match (&self.identity, &other.identity) {
            (Identity::Ebs(one), Identity::Ebs(other)) => (one == other, false),
            (Identity::Gce(one), Identity::Gce(other))
            | (Identity::Iscsi(one), Identity::Iscsi(other)) => (one == other, true),
            (
                Identity::Rbd { monitors, pool, image },
                Identity::Rbd { monitors: theirs, pool: their_pool, image: their_image },
            ) => {
                let has_common = monitors.iter().any(|monitor| theirs.contains(monitor));
                (has_common && pool == their_pool && image == their_image, true)
            }
            _ => (false, false),
        };
        is_same && !(may_share && self.is_read_only && other.is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn disks_are_shared_only_by_readers_and_ebs_volumes_by_nobody() {
        let conflicts = |one: Value, other: Value| {
            Disk::read(&one).unwrap().conflicts(&Disk::read(&other).unwrap())
        };
        let gce = |name: &str, read_only: bool| json!({"name": "v", "gcePersistentDisk": {"pdName": name, "readOnly": read_only}});
        assert!(conflicts(gce("a", false), gce("a", true)));
        assert!(!conflicts(gce("a", true), gce("a", true)));
        assert!(!conflicts(gce("a", false), gce("b", false)));
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}});
        assert!(conflicts(ebs("a"), ebs("a")));
        assert!(!conflicts(ebs("a"), gce("a", false)));
        let iscsi = |read_only: bool| json!({"iscsi": {"iqn": "iqn.x", "readOnly": read_only}});
        assert!(conflicts(iscsi(false), iscsi(true)));
        assert!(!conflicts(iscsi(true), iscsi(true)));
        let rbd = |monitors: Value, image: &str| json!({"rbd": {"monitors": monitors, "pool": "rbd", "image": image}});
        assert!(conflicts(rbd(json!(["a", "b"]), "i"), rbd(json!(["b", "c"]), "i")));
        assert!(!conflicts(rbd(json!(["a"]), "i"), rbd(json!(["c"]), "i")));
        assert!(!conflicts(rbd(json!(["a"]), "i"), rbd(json!(["a"]), "j")));
        assert!(Disk::read(&json!({"name": "v", "emptyDir": {}})).is_none());
    }
}
