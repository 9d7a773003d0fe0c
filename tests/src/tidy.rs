//! Rules about the source tree, as functions over what was read, so that each can be tried on a mistake.

mod dependencies;
mod limits;
mod scenarios;
mod sources;

pub use dependencies::{Tree, allowed_dependencies, banned_dependencies, dependency_mistakes, tree_of};
pub use limits::{constants, limit_mistakes};
pub use scenarios::scenario_mistakes;
pub use sources::{source_files, source_mistakes};
