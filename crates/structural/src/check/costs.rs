//! Limits on what rules may cost, in the wording of Kubernetes.

use crate::error::FieldError;

/// The most that one expression may cost, times the number of values it can meet.
pub(super) const PER_EXPRESSION: u64 = 10_000_000;
const PER_SCHEMA: u64 = 100_000_000;

/// The cost of all rules of a schema.
#[derive(Debug, Default)]
pub(super) struct Total {
    sum: u64,
    /// The expressions that cost most, and what they cost.
    expensive: Vec<(u64, String)>,
}

impl Total {
    pub(super) fn add(&mut self, path: String, cost: u64) {
        self.sum = self.sum.saturating_add(cost);
        if cost >= PER_SCHEMA / 100 {
            self.expensive.push((cost, path));
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(4);
        }
    }

    pub(super) fn errors(self, path: &str) -> Vec<FieldError> {
        if self.sum <= PER_SCHEMA {
            return Vec::new();
        }
        let contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let mut errors: Vec<FieldError> =
            self.expensive.into_iter().map(|(_, path)| FieldError::forbidden(path, contributed)).collect();
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, exceeded(what, self.sum, PER_SCHEMA)));
        errors
    }
}

/// That a cost is over its limit, and how far.
#[expect(clippy::cast_precision_loss, reason = "the factor is told with one or six digits")]
pub(super) fn exceeded(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, \
         and maxLength where arrays, maps, and strings are declared)"
    )
}
