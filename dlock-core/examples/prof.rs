//! x
use dlock_core::*;
use std::hint::black_box;
fn main(){
 let rt=tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
 let n = 2000000u32;
 rt.block_on(async{
  let m=Memory::new(); let name=LockName::new("inventory/42").unwrap();
  let locks=Locks::new(m.clone()).unwrap(); let l=locks.mutex("inventory/42").unwrap(); 
  let b=locks.without_handoff().mutex("inventory/42").unwrap(); 
  let f=locks.fair("inventory/42").unwrap(); 
  for _ in 0..2 {
  let t=std::time::Instant::now(); for _ in 0..n { let r=AcquireRequest{name:name.clone(),claim:ClaimId::from_bits(1),mode:Mode::Exclusive,lease:std::time::Duration::from_secs(30),queue:Queue::Enqueue,tokens:1}; let _=black_box(m.acquire(&r).try_ready()); let _=black_box(m.release(&r.as_claim()).try_ready()); } println!("backend cycle {:?}", t.elapsed()/n);
  let t=std::time::Instant::now(); for _ in 0..n { let g=l.lock().await.unwrap(); black_box(g.release().await).unwrap(); } println!("mutex release {:?}", t.elapsed()/n);
  let t=std::time::Instant::now(); for _ in 0..n { let g=l.lock().await.unwrap(); drop(black_box(g)); } println!("mutex drop {:?}", t.elapsed()/n);
  let t=std::time::Instant::now(); for _ in 0..n { let g=b.lock().await.unwrap(); black_box(g.release().await).unwrap(); } println!("bare release {:?}", t.elapsed()/n);
  let t=std::time::Instant::now(); for _ in 0..n { let g=f.lock().await.unwrap(); drop(black_box(g)); } println!("fair drop {:?}", t.elapsed()/n);
  }
 });
}
