//! Sharding: one controller on several replicas, where each key is reconciled by one of them.
//!
//! # Theory
//!
//! Each replica holds its own Lease, with a label that names its group. The replicas whose Leases
//! exist are the *members*. Of a set of members, the one with the highest weight wins a key:
//! `XXH3-64(key, seed = XXH3-64(member))` (rendezvous hashing). It is the same in every process and
//! version. When a member joins or leaves, only the keys that it wins move.
//!
//! Replicas see members join and leave at different times, so knowing the winner is not enough.
//! Each member therefore publishes, in an annotation of its Lease, the set of members that it has
//! *acknowledged*. This is a promise:
//!
//! > From this publication to the next, I start no pass over a key that I do not win among these,
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
//! Suppose `r` and `m` both may run `k` at one time. Both their Leases exist then (see below), and
//! by 2 the promise in each Lease gives `k` to its holder. Let each Lease have carried such
//! promises without interruption since `p(r)` and `p(m)`, in the server's order of writes, and let
//! `p(r)` be the earlier. By 2, `m` has seen in its watch its own promise from `p(m)` or later. A
//! watch delivers changes in the server's order, so the same view has `r`'s Lease at `p(m)` or
//! later, with a promise that gives `k` to `r`. By 3, `m` may not run `k`. The proof does not
//! assume that both had the *same* set.
//!
//! A Lease is deleted by its holder, when it leaves and its passes have ended, or by others, when
//! it has not changed for its duration. Others delete the version that they saw last, so an unseen
//! renewal makes the deletion fail. So at the deletion, a full duration has passed since they saw
//! the last renewal, which was sent before that. The holder's deadline has passed by then.
//!
//! # What moves, and when
//!
//! | event  | keys that move            | time without an owner                                                              |
//! |--------|---------------------------|------------------------------------------------------------------------------------|
//! | join   | the keys the new member wins | until their owners have ended their passes and published: a few round trips      |
//! | leave  | the keys it owned          | until the others have seen its Lease deleted, and published                         |
//! | crash  | the keys it owned          | as a leave, plus the lease duration, 15 s                                           |
//!
//! All other keys are unaffected. A pass that does not end delays the keys that its member loses at
//! that event, not others: set a time-out for passes. Keys that a replica gains are queued there
//! with the cause [`HandOver`](crate::explain::Cause::HandOver). They come from its caches, and
//! from the last [`REFUSED_KEYS_MAX`] keys that were queued while another replica owned them. So
//! the new owner also learns of deletions that the old one did not handle.
//!
//! # Limits
//!
//! - The limits of [`fence`](crate::fence): bytes on the wire, reads, effects other than requests,
//!   the rate of clocks, suspend.
//! - A write that its pass abandoned (a time-out, a dropped future) may still be on the wire after
//!   the pass has ended and its key has moved. Awaited requests hold the key.
//! - Every replica caches all objects and handles every event; only reconciling is divided. The
//!   server's own selectors for sharded watches are not used.
//! - Deleting a member's Lease by hand deletes its promise: until the member notices, at its next
//!   renewal or by the watch, another may run its keys. Only the group should be permitted to
//!   delete its Leases.
//! - Delays ([`Action::requeue_after`](crate::Action::requeue_after)) and back-offs do not move:
//!   the new owner reconciles a key at once, and the old delay is dropped.
//! - Keys of a [`channel`](crate::ControllerBuilder::channel) are not in any cache. Send them to
//!   every replica. All but the owner refuse them, and a hand-over returns them only if they are
//!   among the last refused keys.

mod gate;
mod hand_over;
mod member;
mod options;
mod ownership;
mod promise;
mod roster;
mod state;

pub(crate) use self::gate::{Attached, Gate, GatePass};
use self::member::Member;
pub use self::{
    gate::REFUSED_KEYS_MAX,
    options::{MEMBERS_MAX, ShardOptions, Sharded},
    promise::{owner, weight},
    state::ShardView,
};
