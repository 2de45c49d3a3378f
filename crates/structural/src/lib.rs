//! Structural schemas, as the Kubernetes API server (v1.36) treats those of CustomResourceDefinitions.
//!
//! A [`Schema`] is made once per version of a CRD: [`Schema::compile`] checks it as the API server does when the CRD is
//! created, [`Schema::load`] takes one that was checked before. Then it works on objects as JSON:
//!
//! ```text
//! object ─▶ prune ─▶ default ─▶ validate ─▶ stored
//!             │                    │
//!             └ dropped paths      └ FieldErrors, as they go into Status.details.causes
//! ```
//!
//! Owned here: the checks of schemas, pruning, defaulting, validation with ratcheting, and CEL, parser and evaluator
//! included. Messages are worded as Kubernetes words them; the tests compare them with what a real API server said.
//!
//! Bounded: a schema may nest 128 levels; defaults fill in 3 MiB and 100 levels at most; a validation tells at most 100 errors; patterns run in linear time; a CEL
//! rule costs at most 1,000,000 steps and all rules of one object 10,000,000, as in Kubernetes. A CRD whose rules could
//! cost more than Kubernetes' limits by an estimate of the same kind is refused.
//!
//! Deliberately absent: I/O, clocks and async; HTTP; the metadata of root objects, which the API server knows itself;
//! the CRD around the schema (names, versions, subresources); conversion between versions. Of CEL: protobuf messages, the
//! libraries for semantic versions, named formats and JSON patches, names of time zones, and `+` that keeps a set a set;
//! a rule that uses an absent function is refused when its CRD is created. One quirk of Kubernetes is left out: there a
//! list passes for a string that has a format.

mod cel;
mod check;
mod correlate;
mod default;
mod error;
mod field_path;
mod formats;
mod go;
mod intern;
mod node;
mod parse;
mod place;
mod prune;
mod schema;
mod validate;

pub use crate::default::DEEPEST;
pub use crate::error::{FieldError, Reason};
pub use crate::intern::Interner;
pub use crate::schema::Schema;
