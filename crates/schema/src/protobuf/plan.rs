//! How the message of each definition is written, made once from the tables.
//!
//! Most fields of an object are absent, and most absent fields are written all the same: an empty
//! string, a zero, an empty message with its own absent fields. Their bytes are always the same, so
//! a plan holds them.

use super::node::Node;
use super::writer::Writer;
use super::{EncodeError, member};
use setpoint_facts::{DEFINITIONS, Definition, Field};
use std::sync::{LazyLock, OnceLock};

/// The fields of a message, from the last to the first.
#[derive(Debug)]
pub(super) struct Plan(Box<[Step]>);

#[derive(Debug)]
enum Step {
    Field {
        /// Position in the definition.
        at: usize,
        number: u32,
        field: &'static Field,
        /// What is written without a value, in reverse.
        absent: Box<[u8]>,
    },
    /// A message whose members JSON lifts to where it stands.
    Message { number: u32, fields: Plan },
}

/// The plan of a definition, by its index.
pub(super) fn plan(at: u16) -> Option<&'static Plan> {
    static PLANS: LazyLock<Box<[OnceLock<Plan>]>> =
        LazyLock::new(|| DEFINITIONS.iter().map(|_| OnceLock::new()).collect());
    let at = usize::from(at);
    let (definition, plan) = (DEFINITIONS.get(at)?, PLANS.get(at)?);
    Some(plan.get_or_init(|| Plan::of(definition, definition.protobuf, 0)))
}

impl Plan {
    /// The fields of the message that is `depth` numbers into the ways of `indices`.
    fn of(definition: &'static Definition, indices: &'static [u8], depth: usize) -> Self {
        let way = |at: u8| definition.fields.get(usize::from(at)).map_or(&[][..], |f| f.protobuf);
        let number = |at: &u8| way(*at).get(depth).copied().unwrap_or_default();
        let mut steps = Vec::new();
        for group in indices.chunk_by(|a, b| number(a) == number(b)).rev() {
            let Some(first) = group.first() else { continue };
            let at = usize::from(*first);
            let Some(field) = definition.fields.get(at) else { continue };
            let number = u32::from(number(first));
            steps.push(if field.protobuf.len() > depth + 1 {
                Step::Message { number, fields: Self::of(definition, group, depth + 1) }
            } else {
                let mut absent = Writer::with_capacity(8);
                // Every type has a zero value.
                let _ = member(&mut absent, number, field, &Node::Null);
                Step::Field { at, number, field, absent: absent.into_reversed().into() }
            });
        }
        Self(steps.into())
    }

    /// Writes the fields. `given`: the value of a field by its position in the definition.
    pub(super) fn write<'n, 'a: 'n>(
        &self,
        writer: &mut Writer,
        given: &impl Fn(usize) -> Option<&'n Node<'a>>,
    ) -> Result<(), EncodeError> {
        for step in &self.0 {
            match step {
                Step::Field { at, number, field, absent } => match given(*at) {
                    None | Some(Node::Null) => writer.reversed(absent),
                    Some(value) => member(writer, *number, field, value)?,
                },
                Step::Message { number, fields } => {
                    writer.message(*number, |writer| fields.write(writer, given))?;
                }
            }
        }
        Ok(())
    }
}
