//! The decision: the next step of a cluster.
//!
//! # Theory
//!
//! [`decide`] maps the observed state to one next step. It has no memory: the operator may stop
//! anywhere, and the next pass continues from the state that it observes. Each member has a number,
//! and a *slot* of that number has at most a claim, a pod and an entry. The entry determines how
//! etcd starts:
//!
//! | entry | etcd starts as | written |
//! |---|---|---|
//! | none | not at all: the pod waits for it | |
//! | `New` | the first member of a new cluster | once the address of the pod is known |
//! | `Joining` | a new member of this cluster | after etcd has added it to its members |
//! | `Sealed` | a member with existing data; fails without data | once etcd has listed it by its name |
//!
//! So the life of a member is
//!
//! ```text
//! claim → pod → added as learner → Joining → started → Sealed → promoted
//!       … removed from etcd → pod deleted → claim deleted → entry deleted
//! ```
//!
//! A pod without a member and without an entry belongs to a future member; a pod without a member
//! and with an entry to a removed one. A member that lost its data cannot return under its old id,
//! because a sealed one does not start without data. It is removed, and its number is used again.
//!
//! | rule | |
//! |---|---|
//! | one at a time | a step is one change; there is at most one learner; nothing voluntary happens while a voting member is not healthy |
//! | quorum | a voting member is removed only if the healthy others are a majority before and after; pods are replaced only if all are healthy |
//! | no quorum | members do not change; only pods whose claims exist are recreated |
//! | before the cluster has begun | the first member's data may be deleted: no client knows the cluster yet |
//!
//! The slots must be read before the members: then an entry without a member means removal.

/// One slot: the objects of one number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    /// The number.
    pub ordinal: u32,
    /// Its claim.
    pub claim: Claim,
    /// Its pod.
    pub pod: Option<Pod>,
    /// How etcd starts in it.
    pub entry: Option<Entry>,
    /// The peer address of its member, if the entry or the pod says it.
    pub url: Option<String>,
}

/// A claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Claim {
    /// It does not exist.
    #[default]
    Absent,
    /// It exists.
    Present,
    /// It is being deleted.
    Deleting,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// It is being deleted.
    pub is_deleting: bool,
    /// It was made from the present spec.
    pub is_current: bool,
    /// etcd has reported that its data is missing.
    pub has_lost_data: bool,
    /// The backup could not be restored in it.
    pub has_failed_restore: bool,
    /// It has not been ready for longer than members may be silent.
    pub is_silent: bool,
}

/// How etcd starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// As the first member of a new cluster.
    New,
    /// As a new member.
    Joining,
    /// Only with the data that it has.
    Sealed,
}

/// A member, as etcd lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name; empty before it has started.
    pub name: String,
    /// Its slot; `None` if it is in none.
    pub ordinal: Option<u32>,
    /// It does not vote.
    pub is_learner: bool,
    /// It answers, and a majority agrees with it.
    pub is_healthy: bool,
    /// It leads.
    pub is_leader: bool,
}

/// The observed state and the desired one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// How many members should vote.
    pub size: u32,
    /// The cluster has begun.
    pub has_begun: bool,
    /// No pod may be made from the spec, and why.
    pub refused: Option<String>,
    /// The slots that have anything, by number.
    pub slots: Vec<Slot>,
    /// The members; `None` if no majority answers.
    pub members: Option<Vec<Member>>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make the claim of a slot.
    CreateClaim(u32),
    /// Make the pod of a slot.
    CreatePod(u32),
    /// Write the entry of a slot.
    SetEntry(u32, Entry),
    /// Add the member of a slot to etcd, as a learner.
    AddLearner(u32),
    /// Let a learner vote.
    Promote(u64),
    /// Remove a member from etcd.
    RemoveMember(u64, Reason),
    /// Delete the pod of a slot.
    DeletePod(u32, Reason),
    /// Delete the claim of a slot.
    DeleteClaim(u32),
    /// Delete the entry of a slot.
    DeleteEntry(u32),
    /// Wait for a change.
    Wait(Wait),
    /// The cluster is as it should be.
    Done,
}

/// The purpose of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The cluster should be smaller.
    ScaleDown,
    /// The member has lost its data, or is silent.
    Lost,
    /// The member is removed, or never was one.
    Leftover,
    /// The pod is not made from the present spec.
    Outdated,
    /// The restore has failed: it starts over.
    Restore,
}

/// The event that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The first member starts.
    FirstMember,
    /// Something that was deleted disappears.
    Deletion(u32),
    /// The pod of a slot gets an address.
    Address(u32),
    /// A learner starts and receives the data.
    Learner(u64),
    /// A member becomes healthy.
    Member(u64),
    /// A majority of the members answers.
    Quorum,
    /// A member is lost, and removing it would cost the majority.
    LostBeyondQuorum(u64),
    /// There is a member that the operator did not make.
    Foreign(u64),
    /// The spec cannot be followed.
    Refused(String),
}

/// The number of members that are a majority.
pub fn quorum(n_voters: usize) -> usize {
    n_voters / 2 + 1
}

impl Slot {
    /// Its pod is being deleted, and its node does not end it: other slots do not wait for it.
    fn is_stuck(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.is_deleting && pod.is_silent)
    }
}

impl State {
    fn slot(&self, ordinal: u32) -> Slot {
        let found = self.slots.iter().find(|slot| slot.ordinal == ordinal);
        found.cloned().unwrap_or(Slot { ordinal, ..Slot::default() })
    }

    fn create_pod(&self, ordinal: u32) -> Step {
        match &self.refused {
            Some(why) => Step::Wait(Wait::Refused(why.clone())),
            None => Step::CreatePod(ordinal),
        }
    }

    /// Whether a member's data is gone or out of reach.
    fn is_lost(&self, member: &Member) -> bool {
        let Some(ordinal) = member.ordinal else { return false };
        let slot = self.slot(ordinal);
        let pod = slot.pod.as_ref();
        slot.claim != Claim::Present
            || pod.is_some_and(|pod| pod.has_lost_data)
            || !member.is_healthy && pod.is_some_and(|pod| pod.is_silent)
    }
}

/// The next step.
pub fn decide(state: &State) -> Step {
    if !state.has_begun {
        return begin(state);
    }
    let Some(members) = &state.members else { return recover(state) };
    // A member whose pod goes is as good as gone.
    let mut members = members.clone();
    for member in &mut members {
        let slot = member.ordinal.map(|ordinal| state.slot(ordinal));
        let has_pod = slot.is_none_or(|slot| slot.pod.is_some_and(|pod| !pod.is_deleting));
        member.is_healthy &= has_pod;
    }
    let members = &members;
    let steps = [foreign, clean_up, seal, pods, learner, lost, scale_down, health];
    for step in steps {
        if let Some(step) = step(state, members) {
            return step;
        }
    }
    if let Some(why) = &state.refused {
        return Step::Wait(Wait::Refused(why.clone()));
    }
    let steps = [scale_up, leftovers, upgrade];
    steps.iter().find_map(|step| step(state, members)).unwrap_or(Step::Done)
}

/// Starts the first member.
fn begin(state: &State) -> Step {
    let slot = state.slot(0);
    let Some(pod) = &slot.pod else {
        return match (slot.claim, slot.entry) {
            (Claim::Deleting, _) => Step::Wait(Wait::Deletion(0)),
            (Claim::Absent, Some(_)) => Step::DeleteEntry(0),
            (Claim::Absent, None) => Step::CreateClaim(0),
            // The next pod may have another address.
            (Claim::Present, Some(_)) => Step::DeleteEntry(0),
            (Claim::Present, None) => state.create_pod(0),
        };
    };
    match (slot.claim, slot.entry) {
        _ if pod.is_deleting => Step::Wait(Wait::Deletion(0)),
        (Claim::Present, _) if pod.has_failed_restore => Step::DeleteClaim(0),
        (Claim::Absent | Claim::Deleting, _) => Step::DeletePod(0, Reason::Restore),
        // It has not begun, so a changed spec costs nothing.
        (Claim::Present, _) if !pod.is_current => Step::DeletePod(0, Reason::Outdated),
        (Claim::Present, None) if slot.url.is_none() => Step::Wait(Wait::Address(0)),
        (Claim::Present, None) => Step::SetEntry(0, Entry::New),
        (Claim::Present, Some(_)) => Step::Wait(Wait::FirstMember),
    }
}

/// Makes pods again whose data is there, so that a majority may answer, and lets them start with
/// their data only.
fn recover(state: &State) -> Step {
    for slot in state.slots.iter().filter(|slot| slot.claim == Claim::Present) {
        let may_start = matches!(slot.entry, Some(Entry::Joining | Entry::Sealed));
        // The first member must not begin again; an entry may have been deleted.
        if !may_start && slot.url.is_some() {
            return Step::SetEntry(slot.ordinal, Entry::Sealed);
        }
        if slot.pod.is_none() && slot.entry != Some(Entry::New) {
            return state.create_pod(slot.ordinal);
        }
    }
    Step::Wait(Wait::Quorum)
}

/// Members that are in no slot. One that never started is a learner whose pod is gone.
fn foreign(_: &State, members: &[Member]) -> Option<Step> {
    let member = members.iter().find(|member| member.ordinal.is_none())?;
    Some(match member.is_learner && member.name.is_empty() {
        true => Step::RemoveMember(member.id, Reason::Leftover),
        false => Step::Wait(Wait::Foreign(member.id)),
    })
}

fn is_member(members: &[Member], slot: &Slot) -> bool {
    members.iter().any(|member| member.ordinal == Some(slot.ordinal))
}

/// Removes what is left of members that were removed from etcd.
fn clean_up(state: &State, members: &[Member]) -> Option<Step> {
    let mut removed = state.slots.iter().filter(|slot| slot.entry.is_some() && !slot.is_stuck());
    removed.find(|slot| !is_member(members, slot)).map(delete)
}

/// The next step of the removal of a slot.
fn delete(slot: &Slot) -> Step {
    let ordinal = slot.ordinal;
    match (&slot.pod, slot.claim, slot.entry) {
        (Some(pod), ..) if pod.is_deleting => Step::Wait(Wait::Deletion(ordinal)),
        (Some(_), ..) => Step::DeletePod(ordinal, Reason::Leftover),
        (None, Claim::Present, _) => Step::DeleteClaim(ordinal),
        (None, Claim::Deleting, _) => Step::Wait(Wait::Deletion(ordinal)),
        (None, Claim::Absent, _) => Step::DeleteEntry(ordinal),
    }
}

/// Seals members that have started, so that they never start without their data.
fn seal(state: &State, members: &[Member]) -> Option<Step> {
    let has_started =
        |ordinal| members.iter().any(|m| m.ordinal == Some(ordinal) && !m.name.is_empty());
    let is_open = |slot: &&Slot| slot.entry != Some(Entry::Sealed) && slot.url.is_some();
    let mut open = state.slots.iter().filter(is_open);
    let slot = open.find(|slot| has_started(slot.ordinal))?;
    Some(Step::SetEntry(slot.ordinal, Entry::Sealed))
}

/// Makes the pods of members again whose data is there.
fn pods(state: &State, members: &[Member]) -> Option<Step> {
    let mut slots = state.slots.iter().filter(|slot| is_member(members, slot));
    let slot = slots.find(|slot| slot.pod.is_none() && slot.claim == Claim::Present)?;
    Some(state.create_pod(slot.ordinal))
}

/// Brings a learner on its way.
fn learner(state: &State, members: &[Member]) -> Option<Step> {
    let learner = members.iter().find(|member| member.is_learner)?;
    let slot = state.slot(learner.ordinal?);
    let n_voters = members.iter().filter(|member| !member.is_learner).count();
    Some(if n_voters >= state.size as usize {
        Step::RemoveMember(learner.id, Reason::ScaleDown)
    } else if state.is_lost(learner) {
        Step::RemoveMember(learner.id, Reason::Lost)
    } else if slot.entry.is_none() {
        Step::SetEntry(slot.ordinal, Entry::Joining)
    } else if learner.is_healthy && !learner.name.is_empty() {
        Step::Promote(learner.id)
    } else {
        Step::Wait(Wait::Learner(learner.id))
    })
}

/// Whether a majority stays, before and after, if a voting member is removed.
fn is_removable(members: &[Member], member: &Member) -> bool {
    let voters = members.iter().filter(|member| !member.is_learner);
    let (n, n_healthy) = (voters.clone().count(), voters.filter(|voter| voter.is_healthy).count());
    let n_others = n_healthy - usize::from(member.is_healthy);
    n > 1 && n_healthy >= quorum(n) && n_others >= quorum(n - 1)
}

/// Removes a voting member that is lost.
fn lost(state: &State, members: &[Member]) -> Option<Step> {
    let mut lost: Vec<_> =
        members.iter().filter(|one| !one.is_learner && state.is_lost(one)).collect();
    lost.sort_by_key(|member| member.is_healthy);
    let first = lost.first()?;
    Some(match lost.iter().find(|member| is_removable(members, member)) {
        Some(member) => Step::RemoveMember(member.id, Reason::Lost),
        None => Step::Wait(Wait::LostBeyondQuorum(first.id)),
    })
}

/// Removes a voting member that is one too many: one that is not healthy, or the last one.
fn scale_down(state: &State, members: &[Member]) -> Option<Step> {
    let mut voters: Vec<_> = members.iter().filter(|member| !member.is_learner).collect();
    if voters.len() <= state.size as usize {
        return None;
    }
    voters.sort_by_key(|voter| (voter.is_healthy, std::cmp::Reverse(voter.ordinal)));
    let found = voters.iter().find(|voter| is_removable(members, voter));
    Some(match found {
        Some(voter) => Step::RemoveMember(voter.id, Reason::ScaleDown),
        None => Step::Wait(Wait::Quorum),
    })
}

/// Nothing voluntary happens while a voting member is not healthy.
fn health(_: &State, members: &[Member]) -> Option<Step> {
    let member = members.iter().find(|member| !member.is_learner && !member.is_healthy)?;
    Some(Step::Wait(Wait::Member(member.id)))
}

/// Prepares the next member: claim, pod, address, and then its place in etcd.
fn scale_up(state: &State, members: &[Member]) -> Option<Step> {
    let n_voters = members.iter().filter(|member| !member.is_learner).count();
    if n_voters >= state.size as usize {
        return None;
    }
    let is_free = |ordinal: &u32| {
        let slot = state.slot(*ordinal);
        !is_member(members, &slot) && !slot.is_stuck()
    };
    let ordinal = (0..).find(is_free)?;
    let slot = state.slot(ordinal);
    Some(match (&slot.pod, slot.claim) {
        (Some(pod), _) if pod.is_deleting => Step::Wait(Wait::Deletion(ordinal)),
        (Some(pod), Claim::Present) if !pod.is_current => {
            Step::DeletePod(ordinal, Reason::Outdated)
        }
        (Some(_), Claim::Present) if slot.url.is_none() => Step::Wait(Wait::Address(ordinal)),
        // A learner has the whole time to become ready: else it would be removed as soon as it is
        // added, after an outage again and again.
        (Some(pod), Claim::Present) if pod.is_silent => Step::DeletePod(ordinal, Reason::Leftover),
        (Some(_), Claim::Present) => Step::AddLearner(ordinal),
        (Some(_), _) => Step::DeletePod(ordinal, Reason::Leftover),
        (None, Claim::Present) => state.create_pod(ordinal),
        (None, Claim::Deleting) => Step::Wait(Wait::Deletion(ordinal)),
        (None, Claim::Absent) => Step::CreateClaim(ordinal),
    })
}

/// Removes what was prepared for members that are no longer wanted.
fn leftovers(state: &State, members: &[Member]) -> Option<Step> {
    let mut slots = state.slots.iter().filter(|slot| !slot.is_stuck());
    slots.find(|slot| !is_member(members, slot)).map(delete)
}

/// Replaces a pod that is not made from the present spec; that of the leader last.
fn upgrade(state: &State, members: &[Member]) -> Option<Step> {
    let is_outdated = |member: &&Member| {
        let slot = member.ordinal.map(|ordinal| state.slot(ordinal));
        slot.and_then(|slot| slot.pod).is_some_and(|pod| !pod.is_current)
    };
    let outdated = members.iter().filter(is_outdated);
    let member = outdated.min_by_key(|member| (member.is_leader, member.ordinal))?;
    let ordinal = member.ordinal?;
    match state.slot(ordinal).pod {
        Some(pod) if pod.is_deleting => Some(Step::Wait(Wait::Deletion(ordinal))),
        _ => Some(Step::DeletePod(ordinal, Reason::Outdated)),
    }
}
