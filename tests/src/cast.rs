//! Those who take part in a history, over simulated networks and real ones alike: tabs and watchers, and the
//! recorder that writes down what they meet.

mod recorder;
mod tab;
mod visit;
mod watcher;

pub use recorder::Recorder;
pub use tab::{Order, TabSettings, live};
pub(crate) use watcher::shown;
pub use watcher::watch;
