//! Which member wins a key.

use twox_hash::XxHash3_64;

/// How much a member weighs for a key: `XXH3-64(key, seed = XXH3-64(member))`, over the bytes of
/// their texts.
///
/// A published function of two texts, so that each process, and each later version, comes to the
/// same.
pub fn weight(member: &str, key: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(seed_of(member), key.as_bytes())
}

/// Who owns a key among these members: the one that weighs most, and of equal ones the one whose
/// name comes last. `None` among none.
///
/// When a member comes, the keys that change are those that it wins; when one goes, those that it
/// had.
pub fn owner<'a>(members: impl IntoIterator<Item = &'a str>, key: &str) -> Option<&'a str> {
    members.into_iter().max_by_key(|member| (weight(member, key), *member))
}

pub(super) fn seed_of(member: &str) -> u64 {
    XxHash3_64::oneshot(member.as_bytes())
}

/// [`weight`] of a member whose seed is known.
pub(super) fn weight_of(seed: u64, key: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_published_functions() {
        // Of the reference implementation: another value here moves every key of a running group at
        // an upgrade.
        assert_eq!(seed_of(""), 0x2d06_8005_38d3_94c2);
        assert_eq!(weight("", ""), XxHash3_64::oneshot_with_seed(0x2d06_8005_38d3_94c2, b""));
    }

    #[test]
    fn members_that_come_or_go_move_only_their_keys() {
        let names: Vec<String> = (0..7).map(|n| format!("replica-{n}")).collect();
        let keys: Vec<String> = (0..2000).map(|n| format!("default/object-{n}")).collect();
        let owner_among =
            |n: usize, key: &str| owner(names[..n].iter().map(String::as_str), key).unwrap();
        for (n, newcomer) in names.iter().enumerate().skip(1) {
            let mut n_moved = 0;
            for key in &keys {
                let (before, after) = (owner_among(n, key), owner_among(n + 1, key));
                if before != after {
                    assert_eq!(after, newcomer);
                    n_moved += 1;
                }
            }
            let share = keys.len() / (n + 1);
            assert!(n_moved > share / 2 && n_moved < share * 3 / 2, "{n_moved} of {share}");
        }
        assert_eq!(owner([], "a"), None);
    }
}
