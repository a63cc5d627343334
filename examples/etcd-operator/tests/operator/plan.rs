//! The decision against a model of a cluster: whatever happens to it, no step costs the majority,
//! and in the end the cluster is as declared.

use etcd_operator::plan::{
    Claim, Entry, Member, Pod, Reason, Slot, State, Step, Wait, decide, quorum,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The objects of a number, and the data in its claim.
#[derive(Debug, Clone, Default)]
struct Place {
    claim: Claim,
    pod: Option<ModelPod>,
    entry: Option<Entry>,
    /// The member whose data it is.
    data: Option<u64>,
}

#[derive(Debug, Clone)]
struct ModelPod {
    template: u32,
    is_deleting: bool,
}

#[derive(Debug, Clone)]
struct ModelMember {
    id: u64,
    ordinal: u32,
    has_started: bool,
    is_learner: bool,
}

/// A cluster with etcd as it behaves.
#[derive(Debug, Clone, Default)]
struct Model {
    size: u32,
    template: u32,
    has_begun: bool,
    places: BTreeMap<u32, Place>,
    members: Vec<ModelMember>,
    n_members: u64,
    n_beginnings: u32,
}

impl Model {
    /// Whether a member answers, also while its pod ends.
    fn runs(&self, member: &ModelMember) -> bool {
        let place = self.places.get(&member.ordinal);
        place.is_some_and(|place| {
            place.pod.is_some() && place.entry.is_some() && place.data == Some(member.id)
        })
    }

    /// Whether it will still answer when everything that ends has ended.
    fn stays(&self, member: &ModelMember) -> bool {
        let pod = self.places.get(&member.ordinal).and_then(|place| place.pod.as_ref());
        self.runs(member) && pod.is_some_and(|pod| !pod.is_deleting)
    }

    fn keeps_quorum(&self) -> bool {
        let n = self.voters().count();
        n > 0 && self.voters().filter(|voter| self.stays(voter)).count() >= quorum(n)
    }

    fn voters(&self) -> impl Iterator<Item = &ModelMember> {
        self.members.iter().filter(|member| !member.is_learner)
    }

    fn has_quorum(&self) -> bool {
        let n = self.voters().count();
        n > 0 && self.voters().filter(|voter| self.runs(voter)).count() >= quorum(n)
    }

    fn state(&self) -> State {
        let slots = self.places.iter().map(|(ordinal, place)| Slot {
            ordinal: *ordinal,
            claim: place.claim,
            pod: place.pod.as_ref().map(|pod| Pod {
                is_deleting: pod.is_deleting,
                is_current: pod.template == self.template,
                has_lost_data: place.entry == Some(Entry::Sealed) && place.data.is_none(),
                has_failed_restore: false,
                // One that waits for what will not come.
                is_silent: place.entry == Some(Entry::Joining)
                    && place
                        .data
                        .is_some_and(|id| !self.members.iter().any(|member| member.id == id)),
            }),
            entry: place.entry,
            url: (place.pod.is_some() || place.entry.is_some()).then(|| ordinal.to_string()),
        });
        let leader = self.voters().find(|voter| self.runs(voter)).map(|voter| voter.id);
        let members = self.members.iter().map(|member| Member {
            id: member.id,
            name: if member.has_started { member.ordinal.to_string() } else { String::new() },
            ordinal: Some(member.ordinal),
            is_learner: member.is_learner,
            is_healthy: self.has_quorum() && self.runs(member),
            is_leader: leader == Some(member.id),
        });
        State {
            size: self.size,
            has_begun: self.has_begun,
            refused: None,
            slots: slots.collect(),
            members: self.has_quorum().then(|| members.collect()),
        }
    }

    /// What the cluster does by itself: pods and claims go, members start.
    fn advance(&mut self) {
        for place in self.places.values_mut() {
            place.pod = place.pod.take().filter(|pod| !pod.is_deleting);
            if place.claim == Claim::Deleting && place.pod.is_none() {
                (place.claim, place.data) = (Claim::Absent, None);
            }
        }
        let is_empty = |place: &Place| {
            place.claim == Claim::Absent && place.pod.is_none() && place.entry.is_none()
        };
        self.places.retain(|_, place| !is_empty(place));
        let starting = self.places.iter().filter(|(_, place)| {
            place.pod.is_some() && place.entry.is_some() && place.data.is_none()
        });
        let starting: Vec<_> = starting.map(|(ordinal, place)| (*ordinal, place.entry)).collect();
        for (ordinal, entry) in starting {
            let has_quorum = self.has_quorum();
            let own = self.members.iter_mut().find(|member| member.ordinal == ordinal);
            match (entry, own) {
                (Some(Entry::New), _) => {
                    self.n_beginnings += 1;
                    self.n_members += 1;
                    let id = self.n_members;
                    self.members =
                        vec![ModelMember { id, ordinal, has_started: true, is_learner: false }];
                    self.places.get_mut(&ordinal).unwrap().data = Some(id);
                }
                (Some(Entry::Joining), Some(own)) if !own.has_started && has_quorum => {
                    own.has_started = true;
                    let id = own.id;
                    self.places.get_mut(&ordinal).unwrap().data = Some(id);
                }
                _ => {}
            }
        }
        // The status says so.
        self.has_begun |= self.has_quorum();
    }

    /// Takes the step that is decided, if it is allowed. Returns whether all is done.
    fn operate(&mut self) -> bool {
        let state = self.state();
        let step = decide(&state);
        let (had_quorum, kept_quorum) = (self.has_quorum(), self.keeps_quorum());
        let n = self.voters().count();
        let at = format!("{step:?} in {self:#?}");
        let is_member = |ordinal: u32| self.members.iter().any(|one| one.ordinal == ordinal);
        match &step {
            Step::CreateClaim(ordinal) => {
                assert!(!is_member(*ordinal), "{at}");
                let place = self.places.entry(*ordinal).or_default();
                assert_eq!((place.claim, place.data), (Claim::Absent, None), "{at}");
                place.claim = Claim::Present;
            }
            Step::CreatePod(ordinal) => {
                let place = self.places.get_mut(ordinal).unwrap();
                assert!(place.claim == Claim::Present && place.pod.is_none(), "{at}");
                place.pod = Some(ModelPod { template: self.template, is_deleting: false });
            }
            Step::SetEntry(ordinal, entry) => {
                assert!(*entry != Entry::Joining || is_member(*ordinal), "{at}");
                assert!(*entry != Entry::New || !self.has_begun, "{at}");
                self.places.get_mut(ordinal).unwrap().entry = Some(*entry);
            }
            Step::DeleteEntry(ordinal) => {
                assert!(!self.has_begun || !is_member(*ordinal), "{at}");
                self.places.get_mut(ordinal).unwrap().entry = None;
            }
            Step::AddLearner(ordinal) => {
                assert!(had_quorum && self.members.iter().all(|one| !one.is_learner), "{at}");
                assert!(!is_member(*ordinal), "{at}");
                self.n_members += 1;
                let (id, ordinal) = (self.n_members, *ordinal);
                let learner = ModelMember { id, ordinal, has_started: false, is_learner: true };
                self.members.push(learner);
            }
            Step::Promote(id) => {
                assert!(had_quorum && n < self.size as usize, "{at}");
                let learner = self.members.iter().position(|member| member.id == *id).unwrap();
                assert!(self.runs(&self.members[learner]), "{at}");
                self.members[learner].is_learner = false;
            }
            Step::RemoveMember(id, _) => {
                assert!(had_quorum, "{at}");
                self.members.retain(|member| member.id != *id);
                assert!(!self.members.is_empty(), "{at}");
            }
            Step::DeletePod(ordinal, why) => {
                // A replaced pod is missed for a while: nobody else may be.
                if *why == Reason::Outdated && is_member(*ordinal) && self.has_begun {
                    assert!(self.voters().all(|voter| self.stays(voter)), "{at}");
                }
                assert!(
                    *why == Reason::Outdated || !self.has_begun || !is_member(*ordinal),
                    "{at}"
                );
                self.places.get_mut(ordinal).unwrap().pod.as_mut().unwrap().is_deleting = true;
            }
            Step::DeleteClaim(ordinal) => {
                assert!(!self.has_begun || !is_member(*ordinal), "{at}");
                self.places.get_mut(ordinal).unwrap().claim = Claim::Deleting;
            }
            Step::Wait(Wait::Foreign(_)) => panic!("{at}"),
            Step::Wait(_) => {}
            Step::Done => return true,
        }
        let is_restart = matches!(step, Step::DeletePod(_, Reason::Outdated));
        // One or two members have no majority while one restarts.
        assert!(!kept_quorum || self.keeps_quorum() || is_restart && n <= 2, "{at}");
        assert!(self.n_beginnings <= 1 || !self.has_begun, "{at}");
        false
    }

    /// Goes on until all is done, and checks that it is as declared.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.advance();
            if self.operate() {
                let n = self.size as usize;
                assert_eq!((self.members.len(), self.voters().count()), (n, n), "{self:#?}");
                assert!(self.voters().all(|voter| self.runs(voter)), "{self:#?}");
                assert_eq!(self.places.len(), n, "nothing is left over: {self:#?}");
                let is_as_declared = |place: &Place| {
                    let pod = place.pod.as_ref().unwrap();
                    place.entry == Some(Entry::Sealed) && pod.template == self.template
                };
                assert!(self.places.values().all(is_as_declared), "{self:#?}");
                return;
            }
        }
        panic!("it does not settle; the next step is {:?} of {self:#?}", decide(&self.state()));
    }
}

/// What happens to a cluster.
#[derive(Debug, Clone)]
enum Happening {
    Resize(u32),
    NewTemplate,
    Operate,
    Advance,
    /// The pod of the n-th place is deleted.
    PodGoes(usize),
    /// The data of the n-th place is lost.
    DataGoes(usize),
    /// The claim of the n-th place is deleted.
    ClaimGoes(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        1 => (1_u32..=5).prop_map(Happening::Resize),
        1 => Just(Happening::NewTemplate),
        12 => Just(Happening::Operate),
        12 => Just(Happening::Advance),
        1 => (0_usize..6).prop_map(Happening::PodGoes),
        1 => (0_usize..6).prop_map(Happening::DataGoes),
        1 => (0_usize..6).prop_map(Happening::ClaimGoes),
    ]
}

impl Model {
    fn happen(&mut self, happening: &Happening) {
        let nth = |model: &Self, n: usize| model.places.keys().nth(n).copied();
        match happening {
            Happening::Resize(size) => self.size = *size,
            Happening::NewTemplate => self.template += 1,
            Happening::Operate => _ = self.operate(),
            Happening::Advance => self.advance(),
            Happening::PodGoes(n) => {
                let place = nth(self, *n).and_then(|ordinal| self.places.get_mut(&ordinal));
                if let Some(pod) = place.and_then(|place| place.pod.as_mut()) {
                    pod.is_deleting = true;
                }
            }
            Happening::DataGoes(n) => {
                if let Some(ordinal) = nth(self, *n) {
                    self.places.get_mut(&ordinal).unwrap().data = None;
                }
            }
            Happening::ClaimGoes(n) => {
                let place = nth(self, *n).and_then(|ordinal| self.places.get_mut(&ordinal));
                if let Some(place) = place.filter(|place| place.claim == Claim::Present) {
                    place.claim = Claim::Deleting;
                }
            }
        }
    }

    /// Whether the cluster can be healed: a majority has data, or it has not begun.
    fn is_curable(&self) -> bool {
        let has_data = |voter: &&ModelMember| {
            let place = self.places.get(&voter.ordinal);
            place.is_some_and(|place| place.data == Some(voter.id) && place.claim == Claim::Present)
        };
        let n = self.voters().count();
        let first = self.places.get(&0).is_none_or(|place| place.entry.is_none());
        match self.has_begun {
            true => self.voters().filter(has_data).count() >= quorum(n),
            false => n == 0 && first,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn cluster_keeps_its_majority_and_ends_as_declared(
        size in 1_u32..=5,
        happenings in proptest::collection::vec(happening(), 0..300),
    ) {
        let mut model = Model { size, ..Model::default() };
        for happening in &happenings {
            let before = model.clone();
            model.happen(happening);
            // What no operator can heal is another test's.
            let is_harm = !matches!(happening, Happening::Operate | Happening::Advance);
            if is_harm && !model.is_curable() {
                model = before;
            }
        }
        model.settle();
    }

    #[test]
    fn cluster_without_a_majority_keeps_its_members(
        size in 3_u32..=5,
        n_lost in 2_usize..=5,
        happenings in proptest::collection::vec(happening(), 0..60),
    ) {
        let mut model = Model { size, ..Model::default() };
        model.settle();
        for place in model.places.values_mut().take(n_lost.max(size as usize / 2 + 1)) {
            place.data = None;
        }
        prop_assert!(!model.has_quorum());
        let before: Vec<u64> = model.members.iter().map(|member| member.id).collect();
        for happening in happenings {
            model.happen(&happening);
        }
        let after: Vec<u64> = model.members.iter().map(|member| member.id).collect();
        prop_assert_eq!((before, model.n_beginnings), (after, 1));
    }
}

#[test]
fn first_member_does_not_begin_again_without_its_data() {
    let mut model = Model { size: 1, ..Model::default() };
    while !model.has_begun {
        model.operate();
        model.advance();
    }
    let place = model.places.get_mut(&0).unwrap();
    (place.pod, place.data) = (None, None);
    for _ in 0..20 {
        model.operate();
        model.advance();
    }
    assert_eq!((model.n_beginnings, model.has_quorum()), (1, false));
}

fn voter(ordinal: u32, is_healthy: bool) -> Member {
    let name = ordinal.to_string();
    Member {
        id: u64::from(ordinal) + 1,
        name,
        ordinal: Some(ordinal),
        is_healthy,
        ..Member::default()
    }
}

fn slot(ordinal: u32) -> Slot {
    Slot {
        ordinal,
        claim: Claim::Present,
        pod: Some(Pod { is_current: true, ..Pod::default() }),
        entry: Some(Entry::Sealed),
        url: Some(ordinal.to_string()),
    }
}

/// A cluster of three, in which some members are healthy.
fn three(healthy: [bool; 3]) -> State {
    State {
        size: 3,
        has_begun: true,
        refused: None,
        slots: (0..3).map(slot).collect(),
        members: Some((0..3).map(|n| voter(n, healthy[n as usize])).collect()),
    }
}

#[test]
fn silent_member_is_replaced_and_a_short_silence_is_borne() {
    assert_eq!(decide(&three([true; 3])), Step::Done);
    let mut state = three([true, false, true]);
    assert_eq!(decide(&state), Step::Wait(Wait::Member(2)));
    state.slots[1].pod.as_mut().unwrap().is_silent = true;
    assert_eq!(decide(&state), Step::RemoveMember(2, Reason::Lost));
    // Two of three: nothing may be removed, whatever is lost.
    state.members.as_mut().unwrap()[2].is_healthy = false;
    assert_eq!(decide(&state), Step::Wait(Wait::LostBeyondQuorum(2)));
}

#[test]
fn member_whose_pod_was_silent_before_it_joins_gets_a_new_pod() {
    let mut state = three([true; 3]);
    state.members.as_mut().unwrap().pop();
    state.slots[2].entry = None;
    assert_eq!(decide(&state), Step::AddLearner(2));
    state.slots[2].pod.as_mut().unwrap().is_silent = true;
    assert_eq!(decide(&state), Step::DeletePod(2, Reason::Leftover));
    // Its node does not answer.
    state.slots[2].url = None;
    assert_eq!(decide(&state), Step::Wait(Wait::Address(2)));
}

#[test]
fn leader_is_replaced_last_and_nobody_while_one_is_down() {
    let mut state = three([true; 3]);
    state.slots.iter_mut().for_each(|slot| slot.pod.as_mut().unwrap().is_current = false);
    state.members.as_mut().unwrap()[0].is_leader = true;
    assert_eq!(decide(&state), Step::DeletePod(1, Reason::Outdated));
    state.slots[1].pod = None;
    assert_eq!(decide(&state), Step::CreatePod(1));
    state.slots[1].pod = Some(Pod { is_current: true, ..Pod::default() });
    state.members.as_mut().unwrap()[1].is_healthy = false;
    assert_eq!(decide(&state), Step::Wait(Wait::Member(2)));
    state.members.as_mut().unwrap()[1].is_healthy = true;
    assert_eq!(decide(&state), Step::DeletePod(2, Reason::Outdated));
    state.slots[2].pod.as_mut().unwrap().is_current = true;
    assert_eq!(decide(&state), Step::DeletePod(0, Reason::Outdated));
    state.refused = Some("too old".to_owned());
    assert_eq!(decide(&state), Step::Wait(Wait::Refused("too old".to_owned())));
}

#[test]
fn removed_member_loses_pod_claim_and_entry_in_this_order() {
    let mut state = three([true; 3]);
    state.size = 2;
    assert_eq!(decide(&state), Step::RemoveMember(3, Reason::ScaleDown));
    state.members.as_mut().unwrap().pop();
    assert_eq!(decide(&state), Step::DeletePod(2, Reason::Leftover));
    state.slots[2].pod.as_mut().unwrap().is_deleting = true;
    assert_eq!(decide(&state), Step::Wait(Wait::Deletion(2)));
    state.slots[2].pod = None;
    assert_eq!(decide(&state), Step::DeleteClaim(2));
    state.slots[2].claim = Claim::Absent;
    assert_eq!(decide(&state), Step::DeleteEntry(2));
    state.slots.pop();
    assert_eq!(decide(&state), Step::Done);
}

#[test]
fn failed_restore_starts_over_with_a_new_claim() {
    let mut state = State { size: 1, slots: vec![slot(0)], ..State::default() };
    state.slots[0].entry = Some(Entry::New);
    assert_eq!(decide(&state), Step::Wait(Wait::FirstMember));
    state.slots[0].pod.as_mut().unwrap().has_failed_restore = true;
    assert_eq!(decide(&state), Step::DeleteClaim(0));
    state.slots[0].claim = Claim::Deleting;
    assert_eq!(decide(&state), Step::DeletePod(0, Reason::Restore));
    state.slots[0].pod = None;
    assert_eq!(decide(&state), Step::Wait(Wait::Deletion(0)));
    state.slots[0].claim = Claim::Absent;
    assert_eq!(decide(&state), Step::DeleteEntry(0));
    state.slots.clear();
    assert_eq!(decide(&state), Step::CreateClaim(0));
}

#[test]
fn lost_entries_are_written_again_with_and_without_a_majority() {
    let mut state = three([true; 3]);
    state.slots.iter_mut().for_each(|slot| slot.entry = None);
    assert_eq!(decide(&state), Step::SetEntry(0, Entry::Sealed));
    state.members = None;
    assert_eq!(decide(&state), Step::SetEntry(0, Entry::Sealed));
    state.slots[0].entry = Some(Entry::Sealed);
    (state.slots[1].pod, state.slots[1].url) = (None, None);
    assert_eq!(decide(&state), Step::CreatePod(1));
}

#[test]
fn member_of_somebody_else_stops_everything() {
    let mut state = three([true; 3]);
    state.size = 5;
    let other = Member { id: 9, name: "other".to_owned(), is_healthy: true, ..Member::default() };
    state.members.as_mut().unwrap().push(other);
    assert_eq!(decide(&state), Step::Wait(Wait::Foreign(9)));
}
