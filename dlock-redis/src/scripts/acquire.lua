-- ACQUIRE, last part: see quick.lua.
return acquire(open(1),id,ARGV[2]+0,ARGV[3]+0,ARGV[4]+0,block,ARGV[6]=='1',ARGV[7],note)
