//! Which claims an expression reads. A user name that is made of an email address must come from a
//! token whose address is verified.

use setpoint_cel::ast::{Expr, ExprKind, Literal, operators};

/// Whether an expression reads `claims.<claim>`, also by `has(claims.<claim>)` and
/// `claims.?<claim>`.
pub(super) fn reads_claim(expression: &Expr, claim: &str) -> bool {
    let any = |list: &[Expr]| list.iter().any(|part| reads_claim(part, claim));
    match &expression.kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) => false,
        ExprKind::Select { operand, field, .. } => {
            is_claims(operand) && field == claim || reads_claim(operand, claim)
        }
        ExprKind::Call { function, target, args } => {
            let is_optional = function == operators::OPT_SELECT && target.is_none();
            let is_read = match &args[..] {
                [operand, name] if is_optional => is_claims(operand) && is_text(name, claim),
                _ => false,
            };
            is_read || any(args) || target.as_ref().is_some_and(|part| reads_claim(part, claim))
        }
        ExprKind::List { elements, .. } => any(elements),
        ExprKind::Map(entries) => entries
            .iter()
            .any(|entry| reads_claim(&entry.key, claim) || reads_claim(&entry.value, claim)),
        ExprKind::Struct { fields, .. } => {
            fields.iter().any(|field| reads_claim(&field.value, claim))
        }
        ExprKind::Comprehension(each) => {
            [&each.range, &each.init, &each.condition, &each.step, &each.result]
                .into_iter()
                .any(|part| reads_claim(part, claim))
        }
    }
}

fn is_claims(expression: &Expr) -> bool {
    matches!(&expression.kind, ExprKind::Ident(name) if name == "claims")
}

fn is_text(expression: &Expr, wanted: &str) -> bool {
    matches!(&expression.kind, ExprKind::Literal(Literal::String(text)) if **text == *wanted)
}
