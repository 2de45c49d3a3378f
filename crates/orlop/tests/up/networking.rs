//! To come.

use super::Test;

pub(crate) const TESTS: &[(&str, Test)] = &[];
