# Dicts of lists, joined, sorted by text and taken into an array.
for {set round 0} {$round < 4} {incr round} {
  set d [dict create]
  for {set i 0} {$i < 200000} {incr i} {
    dict lappend d "key [expr {$i * 7919 % 20011}]" "word $i"
  }
  set rows {}
  dict for {key words} $d {
    lappend rows [list $key [llength $words] [join $words ,]]
  }
  array unset all
  foreach row [lsort -index 0 $rows] {
    set all([lindex $row 0]) [string map {word w} [lindex $row 2]]
  }
  puts "[llength $rows] [array size all] $all(key 0)"
}
