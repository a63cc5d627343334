//! Tests of the checker with known histories, and against a brute-force search.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A register with write, read and compare-and-swap.
struct Register;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Write(u8),
    Read(u8),
    /// From, to, and whether the response reported success.
    Swap(u8, u8, bool),
}
use Call::*;

impl Model for Register {
    type Call = Call;
    type State = u8;

    fn initial(&self) -> u8 {
        0
    }

    fn is_read(&self, call: &Call) -> bool {
        matches!(call, Read(_) | Swap(_, _, false))
    }

    fn step(&self, state: &u8, call: &Call) -> Option<u8> {
        match *call {
            Write(value) => Some(value),
            Read(value) => (value == *state).then_some(*state),
            Swap(from, to, true) => (from == *state).then_some(to),
            Swap(from, _, false) => (from != *state).then_some(*state),
        }
    }
}

/// Parses a drawn history: each line is a call from `[` to `]`; without `]` its outcome is unknown.
fn drawn(lines: &[(Call, &str)]) -> Vec<Timed<Call>> {
    let moment = |line: &str, mark, n: usize| {
        line.find(mark).map(|at| u64::try_from(at * lines.len() + n).unwrap())
    };
    let timed = |(n, (call, line)): (usize, &(Call, &str))| Timed {
        call: *call,
        began: moment(line, '[', n).unwrap(),
        ended: moment(line, ']', n),
    };
    lines.iter().enumerate().map(timed).collect()
}

#[track_caller]
fn holds(lines: &[(Call, &str)]) {
    let verdict = check(&Register, &drawn(lines));
    assert!(matches!(verdict, Verdict::Linearizable(_)), "{verdict:?}");
}

#[track_caller]
fn fails(lines: &[(Call, &str)]) {
    let verdict = check(&Register, &drawn(lines));
    assert!(matches!(verdict, Verdict::Impossible { .. }), "{verdict:?}");
}

#[test]
fn read_sees_the_write_before_it() {
    holds(&[(Write(1), "[]"), (Read(1), "  []")]);
    fails(&[(Write(1), "[]"), (Read(0), "  []")]);
    fails(&[(Read(1), "[]"), (Write(1), "  []")]);
}

#[test]
fn read_beside_a_write_sees_either() {
    holds(&[(Write(1), "[   ]"), (Read(0), " [ ]")]);
    holds(&[(Write(1), "[   ]"), (Read(1), " [ ]")]);
    fails(&[(Write(1), "[   ]"), (Read(2), " [ ]")]);
}

#[test]
fn once_a_write_is_seen_it_stays_seen() {
    holds(&[(Write(1), "[       ]"), (Read(0), " [ ]"), (Read(1), "    [ ]")]);
    fails(&[(Write(1), "[       ]"), (Read(1), " [ ]"), (Read(0), "    [ ]")]);
}

#[test]
fn two_swaps_from_one_value_do_not_both_work() {
    holds(&[(Swap(0, 1, true), "[ ]"), (Swap(0, 2, false), "[ ]"), (Read(1), "   []")]);
    fails(&[(Swap(0, 1, true), "[ ]"), (Swap(0, 2, true), "[ ]")]);
    // Nor can each fail because of the other.
    fails(&[(Swap(0, 1, false), "[ ]"), (Swap(0, 2, false), "[ ]")]);
}

#[test]
fn unknown_write_may_happen_late_or_never() {
    holds(&[(Write(1), "["), (Read(0), "  []")]);
    holds(&[(Write(1), "["), (Read(0), "  []"), (Write(2), "    []"), (Read(1), "      []")]);
    // But not before it started, nor twice.
    fails(&[(Write(1), "   ["), (Read(1), "[]")]);
    fails(&[
        (Write(1), "["),
        (Read(1), " []"),
        (Write(2), "   []"),
        (Read(2), "     []"),
        (Read(1), "       []"),
    ]);
}

#[test]
fn failure_says_how_far_it_came_and_what_was_next() {
    let history = drawn(&[(Write(1), "[]"), (Read(1), "  []"), (Read(0), "    []")]);
    let verdict = check(&Register, &history);
    assert_eq!(verdict, Verdict::Impossible { placed: vec![0, 1], stuck: vec![2] });
}

#[test]
fn bound_is_no_answer() {
    let lines: Vec<_> = (1..9).map(|n| (Write(n), "[ ]")).chain([(Read(0), "   []")]).collect();
    let history = drawn(&lines);
    assert_eq!(check_within(&Register, &history, 100), Verdict::Undecided);
    assert!(matches!(check(&Register, &history), Verdict::Impossible { .. }));
}

#[test]
fn parts_share_no_key() {
    let timed = |call: &'static str| Timed { call, began: 0, ended: None };
    let parts = |calls: &[&'static str]| {
        let history: Vec<_> = calls.iter().copied().map(timed).collect();
        partition(&history, |call| call.chars().collect())
    };
    assert_eq!(parts(&["a", "b", "a"]), [vec![0, 2], vec![1]]);
    assert_eq!(parts(&["a", "b", "c", "bc"]), [vec![0], vec![1, 2, 3]]);
    assert_eq!(parts(&["c", "b", "a", "ab", "bc", "d"]), [vec![0, 1, 2, 3, 4], vec![5]]);
}

/// Tries every subset of the unknown calls and every order.
fn by_force(history: &[Timed<Call>]) -> bool {
    fn go(history: &[Timed<Call>], left: &mut Vec<usize>, state: u8) -> bool {
        if left.iter().all(|at| history[*at].ended.is_none()) {
            return true;
        }
        for place in 0..left.len() {
            let at = left[place];
            let too_early = left
                .iter()
                .any(|other| history[*other].ended.is_some_and(|ended| ended < history[at].began));
            if too_early {
                continue;
            }
            if let Some(state) = Register.step(&state, &history[at].call) {
                left.remove(place);
                let found = go(history, left, state);
                left.insert(place, at);
                if found {
                    return true;
                }
            }
        }
        false
    }
    go(history, &mut (0..history.len()).collect(), 0)
}

/// A random history of three clients of a register, with some forged and some lost responses.
fn random_history(rng: &mut SmallRng) -> Vec<Timed<Call>> {
    let mut history: Vec<Timed<Call>> = Vec::new();
    let (mut state, mut now) = (0, 0);
    let mut under_way: [Option<usize>; 3] = [None; 3];
    while history.len() < 7 {
        now += 1;
        let client = rng.random_range(0..under_way.len());
        match under_way[client].take() {
            // Sometimes the client gives up.
            Some(at) if rng.random_bool(0.2) => history[at].ended = None,
            Some(at) => history[at].ended = Some(now),
            None => {
                let value = rng.random_range(1..4);
                let from = if rng.random_bool(0.6) { state } else { rng.random_range(0..4) };
                let call = match rng.random_range(0..3) {
                    0 => Write(value),
                    1 => Read(from),
                    _ => Swap(from, value, (from == state) ^ rng.random_bool(0.1)),
                };
                // Usually the effect happens immediately.
                if rng.random_bool(0.9) {
                    state = Register.step(&state, &call).unwrap_or(state);
                }
                under_way[client] = Some(history.len());
                history.push(Timed { call, began: now, ended: None });
            }
        }
    }
    for at in under_way.into_iter().flatten() {
        now += 1;
        history[at].ended = Some(now);
    }
    history
}

#[test]
fn search_agrees_with_trying_every_order() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut n_linearizable = 0;
    for _ in 0..4000 {
        let history = random_history(&mut rng);
        let verdict = check(&Register, &history);
        let expected = by_force(&history);
        assert_eq!(matches!(verdict, Verdict::Linearizable(_)), expected, "{history:?}");
        assert_ne!(verdict, Verdict::Undecided);
        n_linearizable += usize::from(expected);
        if let Verdict::Linearizable(sequence) = verdict {
            // The order that was found is valid.
            let mut state = 0;
            for (place, at) in sequence.iter().enumerate() {
                state = Register.step(&state, &history[*at].call).unwrap();
                let later = &sequence[place + 1..];
                assert!(later.iter().all(|other| {
                    history[*other].ended.is_none_or(|ended| ended > history[*at].began)
                }));
            }
        }
    }
    // Both verdicts are frequent.
    assert!((400..3600).contains(&n_linearizable), "{n_linearizable} of 4000");
}
