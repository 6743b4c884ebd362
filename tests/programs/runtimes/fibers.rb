# Fibers that keep values on their stacks, and are resumed in random order. Ends with an error if a value is wrong.
# usage: fibers.rb SECONDS [FIBERS]
seconds = ARGV[0].to_f
many = (ARGV[1] || 20_000).to_i
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }

fibers = Array.new(many) do |number|
  Fiber.new do
    kept = [number] * 8
    loop { Fiber.yield kept.sum }
  end
end
fibers.each(&:resume)

dice = Random.new(7)
finish = now.call + seconds
while now.call < finish
  1000.times do
    number = dice.rand(many)
    raise "fiber #{number}" unless fibers[number].resume == 8 * number
  end
end
puts "every fiber was right"
