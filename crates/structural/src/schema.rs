//! A schema that is ready for use.

use serde_json::Value;

use crate::error::FieldError;
use crate::intern::Interner;
use crate::node::Shared;
use crate::{check, default, parse, prune, validate};

/// A structural schema: immutable, cheap to clone, and compact, as equal parts are stored once.
#[derive(Clone, Debug)]
pub struct Schema {
    root: Shared,
}

impl Schema {
    /// Checks and takes the JSON of `openAPIV3Schema`, which stands at `path` in its CRD.
    ///
    /// # Errors
    /// Those that the API server gives when the CRD is created.
    pub fn compile(schema: &Value, path: &str) -> Result<Self, Vec<FieldError>> {
        let errors = check::check(schema, path);
        if errors.is_empty() { Ok(Self::load(schema)) } else { Err(errors) }
    }

    /// Takes a schema that was checked before. Of one that was not, what makes no sense is left out.
    #[must_use]
    pub fn load(schema: &Value) -> Self {
        Self::load_with(schema, &mut Interner::new())
    }

    /// Like [`Schema::load`], sharing parts with all schemas that were loaded with the same interner.
    #[must_use]
    pub fn load_with(schema: &Value, interner: &mut Interner) -> Self {
        Self { root: parse::parse(schema, interner) }
    }

    /// Removes what the schema does not specify, and returns the paths of what was removed, sorted; a hundred, if there are
    /// more.
    ///
    /// `apiVersion`, `kind` and `metadata` of the object and of resources embedded in it are left alone.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object, true)
    }

    /// Fills in defaults, and drops nulls that are neither allowed nor have a default. Tells whether all defaults fitted:
    /// those that would make the object too large or deeper than [`DEEPEST`](crate::DEEPEST) are left out.
    pub fn default(&self, object: &mut Value) -> bool {
        default::default(&self.root, object)
    }

    /// Validates an object; `old` is the stored one on update, and what it has unchanged is tolerated.
    ///
    /// Guarantees: at most 100 errors, and a bounded cost of CEL rules (see the crate's documentation).
    #[must_use]
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        validate::object(&self.root, object, old)
    }

    /// The type of the field at a path such as `.spec.replicas`: `string`, `integer` and so on; `None` when the schema
    /// has no such property, or does not type it.
    #[must_use]
    pub fn type_at(&self, path: &str) -> Option<&str> {
        let mut node = &self.root;
        for name in path.strip_prefix('.')?.split('.') {
            node = node.property(name)?;
        }
        Some(node.type_name()).filter(|name| !name.is_empty())
    }
}
