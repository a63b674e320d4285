"""The foundation of all rooms: clocks, limits, intervals, liveness. Of our modules it imports only the errors."""
