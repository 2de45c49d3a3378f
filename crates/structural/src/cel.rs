//! The Common Expression Language, as validation rules use it.
//!
//! Flow: text → `lex` → `parse` → `ast`; at CRD creation `check` types it and estimates its cost; `eval` runs it on JSON
//! values that are read through their schema and never copied whole.
//!
//! Guarantees: parsing is bounded in depth and length, and evaluation charges a [`Meter`] before each step that costs
//! time or memory, so that no rule runs longer than its budget, whatever object it meets.

mod ast;
mod check;
mod escape;
mod eval;
mod functions;
mod lex;
mod ops;
mod parse;
mod types;
mod value;

use std::fmt;

pub(crate) use self::check::{check, is_visible};
pub(crate) use self::eval::{Activation, Failure, Meter};
pub(crate) use self::value::Val;

use self::ast::Expr;

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Program {
    expression: Expr,
    /// Whether `oldSelf` occurs: then it is a transition rule.
    pub(crate) uses_old: bool,
}

/// Why an expression does not compile, in the layout of cel-go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Fault {
    /// A fault at a byte of the source: its place, then the line with a pointer below.
    fn at(source: &str, offset: usize, problem: impl fmt::Display) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let text = source.lines().nth(line - 1).unwrap_or_default();
        let pointer = ".".repeat(column);
        Self(format!("ERROR: <input>:{line}:{}: {problem}\n | {text}\n | {pointer}^", column + 1))
    }
}

impl Program {
    pub(crate) fn parse(source: &str) -> Result<Self, Fault> {
        let expression = parse::parse(source)?;
        let uses_old = expression.mentions("oldSelf");
        Ok(Self { expression, uses_old })
    }

    /// Runs the program.
    pub(crate) fn run<'a>(&'a self, activation: &Activation<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
        eval::run(&self.expression, activation, meter)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::types::SIGNATURES;
    use super::{Activation, Failure, Meter, Program, Val};

    fn run(source: &str) -> Result<bool, Failure> {
        let this = json!({ "a": [1, 2, 3], "s": "é😀x" });
        let program = Program::parse(source).unwrap();
        let activation = Activation { this: Val::of(&this, None), old: None };
        let result = program.run(&activation, &mut Meter { left: 100_000 });
        result.map(|value| matches!(value, Val::Bool(true)))
    }

    /// Every function that the checker knows is called on values of all types, fitting or not.
    #[test]
    fn no_function_panics_whatever_it_is_called_with() {
        let values = [
            "self",
            "self.s",
            "self.a",
            "-1",
            "2",
            "9223372036854775807",
            "1e300",
            "''",
            "'1.5Gi'",
            "'10.0.0.0/8'",
            "timestamp('9999-12-31T23:59:59Z')",
            "duration('-2562047h')",
            "quantity('12E')",
            "optional.none()",
        ];
        for (name, member, parameters, _) in SIGNATURES {
            for combination in 0..values.len().pow(u32::try_from(parameters.len().min(3)).unwrap()) {
                let chosen: Vec<&str> = (0..parameters.len())
                    .map(|place| {
                        values[combination / values.len().pow(u32::try_from(place.min(2)).unwrap()) % values.len()]
                    })
                    .collect();
                let source = match (member, chosen.split_first()) {
                    (true, Some((receiver, rest))) => format!("({receiver}).{name}({})", rest.join(", ")),
                    _ => format!("{name}({})", chosen.join(", ")),
                };
                let _ = run(&source);
            }
        }
    }

    #[test]
    fn numbers_span_their_whole_range() {
        assert_eq!(run("-9223372036854775808 + 1 == -9223372036854775807"), Ok(true));
        assert_eq!(run("-0x10 == -16 && - 1.5 < -1.0"), Ok(true));
        assert!(Program::parse("9223372036854775808 > 0").is_err());
        assert!(Program::parse("99999999999999999999 > 0").is_err());
    }

    #[test]
    fn operators_fail_on_overflow_and_foreign_types() {
        for (source, problem) in [
            ("9223372036854775807 + 1 > 0", "integer overflow"),
            ("-9223372036854775808 / -1 > 0", "integer overflow"),
            ("-(-9223372036854775808) > 0", "integer overflow"),
            ("0u - 1u > 0u", "unsigned integer overflow"),
            (
                "timestamp('9999-12-30T22:00:00Z') + duration('72h') > timestamp('2024-01-01T00:00:00Z')",
                "timestamp overflow",
            ),
            ("self.s < 1", "no such overload"),
            ("self.zz", "no such key: zz"),
            ("self.a[3] == 1", "index out of bounds: 3"),
        ] {
            assert_eq!(run(source), Err(Failure::Error(problem.to_owned())), "{source}");
        }
    }
}
