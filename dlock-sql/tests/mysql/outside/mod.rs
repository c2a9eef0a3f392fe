//! What other programs, settings and accidents do to the tables, the connections and the pool.

mod codes;
mod conduct;
mod late;
mod locked;
mod packets;
mod places;
mod promise;
mod records;
mod rows;
mod settings;
