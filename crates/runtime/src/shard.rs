//! One controller on several replicas: each key is reconciled by one of them.
//!
//! # Theory
//!
//! Each replica holds a Lease of its own; a label says which group it belongs to. The replicas
//! whose Leases exist are the *members*. Among any set of members, a key is won by the one with the
//! highest weight, `XXH3-64(key, seed = XXH3-64(member))` (rendezvous hashing): the same in every
//! process and version, and when a member comes or goes, only the keys that it wins move.
//!
//! Replicas see members come and go at different moments, so knowing who wins is not enough. Each
//! member therefore publishes, in an annotation of its Lease, the set of members that it has
//! *acknowledged*. That is a promise:
//!
//! > From this publication to the next, I begin no pass over a key that I do not win among these,
//! > and none is running.
//!
//! ```text
//!   Leases appear, go ──▶ new set ──▶ refuse the keys lost under it ──▶ wait for their passes ──▶ publish ──▶ see it in the watch
//!                                                                                                              │
//!                          reconcile the keys won, unless another member's promise still gives it the key ◀────┘
//! ```
//!
//! Member `r` begins a pass over key `k` only if all of these hold:
//!
//! 1. Its Lease's [deadline](crate::fence) has not passed. Its writes are fenced by the same
//!    deadline, and a pass that still runs when it passes is dropped.
//! 2. The set of its own promise that it sees *in the watch* gives `k` to `r`; so does every one
//!    that it has sent since, and the one that it is about to send.
//! 3. No other Lease in that same view of the watch carries a promise that gives `k` to its holder.
//!    A promise that cannot be read gives its holder everything.
//!
//! # Why no key is reconciled by two
//!
//! Suppose `r` and `m` both may run `k` at one moment. Both their Leases exist then (see below),
//! and the promise that each Lease carries gives `k` to its holder, by 2. Let each have carried
//! such promises without interruption since `p(r)` and `p(m)` in the server's order of writes, and
//! let `p(r)` be the earlier. By 2, `m` has seen in its watch a promise of its own from `p(m)` or
//! later. A watch tells the changes of Leases in the server's order, so the same view holds `r`'s
//! Lease as it was at `p(m)` or later: with a promise that gives `k` to `r`. By 3, `m` may not run
//! `k`. That both had the *same* set is nowhere assumed.
//!
//! A Lease is removed by its holder when it leaves and its passes have ended, or by others when it
//! has not changed for its duration. Then the removal names the version that they saw last: a
//! renewal that they have not seen makes it fail. So at the removal a duration has passed since
//! they saw the last renewal, which is after it was sent, and the holder's deadline has passed
//! before.
//!
//! # What moves, and when
//!
//! | event  | what moves                | how long its keys rest                                                             |
//! |--------|---------------------------|------------------------------------------------------------------------------------|
//! | join   | the keys the newcomer wins | until their present owners have ended their passes and published: a few round trips |
//! | leave  | the keys it owned          | until the others have seen its Lease go, and published                              |
//! | crash  | the keys it owned          | the lease duration more, 15 s                                                       |
//!
//! All other keys go on meanwhile. A pass that does not end holds up the keys that its member loses
//! at that event, not others: give passes a time-out. Keys that a replica gains are queued there,
//! with the cause [`HandOver`](crate::explain::Cause::HandOver), out of its caches, and out of the
//! last [`REFUSED_KEYS_MAX`] keys that were queued while they were another's: so the deletion of an
//! object is told to the new owner too, if the old one has not come to it.
//!
//! # What remains
//!
//! - What [`fence`](crate::fence) names: bytes on the wire, reads, effects that are no requests,
//!   the rate of clocks, suspend.
//! - A write that its pass gave up (a time-out, a future that was dropped) may still be on the wire
//!   when the pass has ended, and its key moves then. Requests that are awaited hold the key.
//! - Every replica caches all objects and looks at every event: what is divided is the work of
//!   reconciling. Shards of a watch by the server's own selector are not used here.
//! - A Lease that somebody deletes by hand, while its member lives, takes the promise with it:
//!   until the member sees that, at its next renewal or by the watch, another may run its keys. Who
//!   may delete Leases of the group should be the group.
//! - Delays ([`Action::requeue_after`](crate::Action::requeue_after)) and back-offs stay where they
//!   were set: a key that moves is reconciled at once by its new owner, and again by none for its
//!   old delay.
//! - Keys that come over a [`channel`](crate::ControllerBuilder::channel) are not in any cache.
//!   Give them to every replica; all but the owner refuse them, and a hand-over brings them again
//!   only as the last refused keys do.

mod attach;
mod claim;
mod gate;
mod member;
mod options;
mod promise;
mod roster;
mod standing;
mod state;
mod weight;

pub(crate) use self::attach::Attached;
pub(crate) use self::gate::{Gate, GatePass};
use self::member::Member;
pub use self::{
    gate::REFUSED_KEYS_MAX,
    options::{MEMBERS_MAX, ShardOptions, Sharded},
    state::ShardView,
    weight::{owner, weight},
};
