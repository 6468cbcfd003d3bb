# Objects, serialisation and garbage collection; the same in threads and in child processes. Prints digests.
require 'digest'
require 'json'
require 'set'
require 'zlib'

Item = Struct.new(:id, :name, :tags, :children)

def build(random, depth)
  Item.new(random.rand(1_000_000), "item #{random.rand(9999)}", Array.new(random.rand(5)) { |i| "tag#{i * random.rand(7)}" },
           depth.zero? ? [] : Array.new(4) { build(random, depth - 1) })
end

def flat(item)
  { 'id' => item.id, 'name' => item.name, 'tags' => item.tags, 'children' => item.children.map { |c| flat(c) } }
end

def work(seed, depth)
  random = Random.new(seed)
  tree = build(random, depth)
  json = JSON.generate(flat(tree))
  back = Marshal.load(Marshal.dump(JSON.parse(json)))
  words = json.scan(/[a-z]+\d*/).tally.sort_by { |w, n| [-n, w] }
  packed = Zlib::Inflate.inflate(Zlib::Deflate.deflate(json, 6))
  symbols = words.first(200).to_h { |w, n| [w.to_sym, n.to_s * 50] }
  GC.start if seed.even?
  big = (1..300).inject(:*) # Integers beyond the machine's
  Digest::SHA256.hexdigest([JSON.generate(back), words, packed, symbols.inspect, Set.new(words).size, big].join('|'))
end

puts "alone: #{work(1, 7)}"
Array.new(6) { |i| Thread.new { work(i + 10, 5) } }.each { |t| puts "thread: #{t.value}" }
4.times do |i|
  IO.popen('-') do |child|
    child ? puts("process: #{child.read}") : print(work(i + 50, 5))
  end
end
GC.compact if GC.respond_to?(:compact)
puts "after: #{work(99, 5)}"
