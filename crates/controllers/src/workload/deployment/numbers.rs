//! How many pods each ReplicaSet of a Deployment has: pure functions of sizes.

use serde_json::Value;

/// How far a rolling update may go above and below the desired number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fenceposts {
    /// Pods above the desired number.
    pub(crate) surge: i32,
    /// Unavailable pods below it.
    pub(crate) unavailable: i32,
}

/// A number, or a percentage of `total`, which is rounded up or down. What is neither is 0.
pub(crate) fn int_or_percent(value: &Value, total: i32, rounds_up: bool) -> i32 {
    if let Some(n) = value.as_i64() {
        return i32::try_from(n).unwrap_or(i32::MAX);
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    let product = i64::from(total).saturating_mul(percent.unwrap_or(0));
    let scaled = if rounds_up { product.saturating_add(99).div_euclid(100) } else { product / 100 };
    i32::try_from(scaled).unwrap_or(i32::MAX)
}

/// The fenceposts of a rolling update of `replicas` pods: surge is rounded up, unavailable down. If
/// both are zero, one pod may be unavailable, because otherwise nothing could be replaced.
pub(crate) fn fenceposts(rolling_update: &Value, replicas: i32) -> Fenceposts {
    let surge = int_or_percent(&rolling_update["maxSurge"], replicas, true);
    let unavailable = int_or_percent(&rolling_update["maxUnavailable"], replicas, false);
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Fenceposts { surge, unavailable: unavailable.min(replicas) }
}

/// The size of a ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    /// Desired pods: `spec.replicas`.
    pub(crate) wanted: i32,
    /// Existing pods: `status.replicas`.
    pub(crate) existing: i32,
    /// Pods that are available.
    pub(crate) available: i32,
    /// Whether the status is of a pass that has seen the spec.
    pub(crate) is_observed: bool,
}

impl Size {
    /// The most pods it has or may create: a set that was made smaller still has its pods until its
    /// controller has deleted them.
    fn bound(&self) -> i32 {
        self.wanted.max(self.existing)
    }

    /// Available pods that will stay, even if the status is stale.
    fn retained(&self) -> i32 {
        self.available.min(self.wanted)
    }
}

/// The next size of the new set of a rolling update: as large as the surge permits.
///
/// The reference adds the desired sizes of all sets, so old pods and their replacements may briefly
/// be more than the surge permits. Here pods count until they are deleted, and the new set grows
/// only if every set has seen its size.
pub(crate) fn grow(new: Size, old: &[Size], replicas: i32, surge: i32) -> i32 {
    if new.wanted >= replicas || !new.is_observed || old.iter().any(|size| !size.is_observed) {
        return new.wanted.min(replicas);
    }
    let total = old.iter().map(Size::bound).fold(new.bound(), i32::saturating_add);
    let room = replicas.saturating_add(surge).saturating_sub(total).max(0);
    new.wanted.saturating_add(room).min(replicas)
}

/// The next sizes of the old sets, oldest first, of a rolling update: first without their
/// unavailable pods, then smaller as far as pods of the new set are available.
pub(crate) fn shrink(old: &[Size], new: Size, replicas: i32, unavailable: i32) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(|size| size.wanted).collect();
    let exact = |sizes: &mut dyn Iterator<Item = i32>| sizes.map(i64::from).sum::<i64>();
    let min_available = i64::from(replicas - unavailable);
    let total = exact(&mut sizes.iter().copied()) + i64::from(new.wanted);
    let mut room = total - min_available - i64::from(new.wanted - new.retained());
    let cut = |size: i32, room: i64| size.min(i32::try_from(room.max(0)).unwrap_or(i32::MAX));
    for (size, old) in sizes.iter_mut().zip(old) {
        let cut = cut(old.wanted - old.retained(), room);
        *size -= cut;
        room -= i64::from(cut);
    }
    let available = exact(&mut old.iter().map(Size::retained)) + i64::from(new.retained());
    room = room.min(available - min_available);
    for size in &mut sizes {
        let cut = cut(*size, room);
        *size -= cut;
        room -= i64::from(cut);
    }
    sizes
}

/// A sum of sizes: at most the greatest number, as the API has no greater ones.
pub(crate) fn sum(sizes: impl IntoIterator<Item = i32>) -> i32 {
    sizes.into_iter().fold(0, i32::saturating_add)
}

/// The most pods of a Deployment of `replicas`, which may be none.
pub(crate) fn with_surge(replicas: i32, surge: i32) -> i32 {
    if replicas > 0 { replicas.saturating_add(surge) } else { 0 }
}

/// A set that is scaled in proportion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its size.
    pub(crate) wanted: i32,
    /// The wanted number with surge at the time of its last scaling: its annotation
    /// `max-replicas`.
    pub(crate) max_replicas: Option<i32>,
}

/// The sizes of several sets after the Deployment was scaled to `replicas`, in proportion to their
/// present sizes. `parts` begins with the one that gets the remainder. `existing` are the pods of
/// the Deployment's status.
pub(crate) fn in_proportion(parts: &[Part], replicas: i32, surge: i32, existing: i32) -> Vec<i32> {
    let max = with_surge(replicas, surge);
    let to_add = max - sum(parts.iter().map(|part| part.wanted));
    let mut added = 0;
    let mut sizes = Vec::with_capacity(parts.len());
    for part in parts {
        let share = if to_add == 0 || part.wanted == 0 { 0 } else { share(part, max, existing) };
        let rest = to_add - added;
        let share = if to_add > 0 { share.min(rest) } else { share.max(rest) };
        added += share;
        sizes.push(part.wanted + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + (to_add - added)).max(0);
    }
    sizes
}

/// What one set gains or loses.
fn share(part: &Part, max: i32, existing: i32) -> i32 {
    if max == 0 {
        return -part.wanted;
    }
    let before = part.max_replicas.filter(|max| *max > 0).unwrap_or(existing);
    if before <= 0 {
        return 0;
    }
    let scaled = f64::from(part.wanted) * f64::from(max) / f64::from(before);
    // Rounds half away from zero; both factors are small enough.
    #[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
    let scaled = scaled.round() as i32;
    scaled - part.wanted
}
